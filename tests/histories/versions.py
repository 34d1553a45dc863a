"""The versions of the transitions that a history compares, and their rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connections

from django_jobqueue import DeadJob, Job
from django_jobqueue.failures import Failure
from django_jobqueue.models import Attempt
from django_jobqueue.outcomes import (
    Cancelled,
    Died,
    GivenBack,
    Outcome,
    Retried,
    Succeeded,
)
from django_jobqueue.states import AttemptOutcome, DeadReason
from django_jobqueue.storage.claims import Claim
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from django_jobqueue.storage.worker_rows import WorkerIdentity
from tests.histories.model import ModelJob


class Version:
    """One version of the transitions, on its own database."""

    def __init__(self, alias: str, *, is_portable: bool) -> None:
        self.name = f"{connections[alias].vendor} portable={is_portable}"
        self.db = Database(alias=alias, is_portable=is_portable)
        # (job, token) → the claim that this version returned.
        self.claims: dict[tuple[UUID, int], Claim] = {}
        # (job, token) → the end that the supervisor wrote when the process died.
        self.crashes: dict[tuple[UUID, int], Ending] = {}

    def read_jobs(self) -> dict[UUID, tuple[Any, ...]]:
        rows = Job.objects.using(self.db.alias).all()
        return {job.pk: describe(job) for job in rows}

    def read_dead(self) -> dict[UUID, tuple[Any, ...]]:
        rows = DeadJob.objects.using(self.db.alias).all()
        return {dead.pk: describe_dead(dead) for dead in rows}

    def read_attempts(self) -> dict[tuple[UUID, int], tuple[int, str]]:
        return {
            (row.job_id, row.lease_token): (row.number, row.outcome)
            for row in Attempt.objects.using(self.db.alias).all()
        }


def describe(job: Job | ModelJob) -> tuple[Any, ...]:
    """Return the values of a live job that must be the same in every version."""
    is_model = isinstance(job, ModelJob)
    return (
        str(job.status),
        job.attempts,
        job.lease_token,
        job.crashes,
        job.lost,
        job.given_back,
        job.isolate,
        job.worker_id,
        job.unique_key,
        job.max_attempts,
        job.run_at,
        job.rank if job.status == "pending" else None,
        job.error,
        job.prune_at,
        job.is_unknown if is_model else job.unknown_since is not None,
        job.is_cancel_requested if is_model else job.cancel_requested_at is not None,
    )


def describe_dead(job: DeadJob | ModelJob) -> tuple[Any, ...]:
    return (
        str(job.reason),
        job.attempts,
        job.lease_token,
        job.crashes,
        job.lost,
        job.given_back,
        job.isolate,
        job.unique_key,
        job.max_attempts,
        job.error,
    )


def make_identity(worker: UUID) -> WorkerIdentity:
    return WorkerIdentity(
        id=worker,
        host="elsewhere",
        pid=1,
        name="",
        queues={},
        concurrency=1,
        version="",
    )


def make_outcome(label: str, delay: timedelta, error: str) -> Outcome:
    failure = Failure(message=error)
    match label:
        case "succeeded":
            return Succeeded("1")
        case "failed":
            return Retried(delay=delay, failure=failure)
        case "cancelled":
            return Cancelled(error)
        case "discarded":
            return Died(
                reason=DeadReason.DISCARDED,
                failure=failure,
                label=AttemptOutcome.DISCARDED,
            )
        case _:
            return GivenBack(
                label=AttemptOutcome(label),
                delay=delay,
                failure=failure,
                is_trouble=error == "trouble",
            )


def make_versions() -> list[Version]:
    if connections["default"].vendor == "postgresql":
        return [
            Version("default", is_portable=False),
            Version("business", is_portable=True),
        ]
    return [Version("default", is_portable=True)]
