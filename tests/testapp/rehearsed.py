"""Handlers for the tests of the testing kit."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction

from django_jobqueue import JobContext, Snooze, job

from .models import Effect


def charge(name: str) -> str:
    """Simulate a call to another system, which cannot be rolled back."""
    charges.append(name)
    return name


async def charge_async(name: str) -> str:
    charges.append(name)
    return name


# Emptied by the tests.
charges: list[str] = []


@job
def chain(length: int) -> int:
    """Enqueue the next job, until `length` jobs have run."""
    if length > 1:
        chain.enqueue(length=length - 1)
    return length


@job
def enqueue_itself() -> None:
    enqueue_itself.enqueue()


@job
def hook_after_commit(name: str, fail: bool = False, robust: bool = False) -> None:
    """Leave an effect when the transaction commits."""

    def leave() -> None:
        if fail:
            raise ValueError("in the hook")
        Effect.objects.create(name=name)

    with transaction.atomic():
        transaction.on_commit(leave, robust=robust)


@job(atomic=True)
def hook_after_atomic(name: str) -> None:
    transaction.on_commit(lambda: charges.append(name))
    Effect.objects.create(name=name)


@job(takes_context=True, backoff=[60, 600])
def pay(context: JobContext, name: str) -> str:
    """Check the lease, charge, then record the charge."""
    context.assert_owned()
    charge(name)
    Effect.objects.create(name=name, job_id=context.job_id)
    return name


@job(atomic=True, takes_context=True)
def pay_atomically(context: JobContext, name: str) -> None:
    Effect.objects.create(name=name, job_id=context.job_id)
    charge(name)


@job(takes_context=True)
async def pay_async(context: JobContext, name: str) -> None:
    await context.aassert_owned()
    await charge_async(name)
    charge(f"{name} again")
    await Effect.objects.acreate(name=name, job_id=context.job_id)


@job(max_attempts=1)
def pay_once(name: str) -> None:
    charge(name)


@job(takes_context=True)
def snooze_twice(context: JobContext, hours: int) -> int:
    if len(charges) < 2:
        charges.append("snoozed")
        raise Snooze(timedelta(hours=hours), "not yet")
    return context.attempt


@job
def catch_everything() -> str:
    try:
        return charge("swallowed")
    except BaseException:
        return "still here"


@job(takes_context=True)
def tell_progress(context: JobContext) -> None:
    context.progress(0.5, "half way")


@job(takes_context=True)
async def tell_progress_async(context: JobContext) -> None:
    context.progress(0.5, "half way")


@job(max_attempts=1)
def fail_an_assertion() -> None:
    raise AssertionError("it fails")
