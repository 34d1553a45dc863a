"""The ordinary handlers that the tests run."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import OperationalError

from django_jobqueue import (
    BaseHandler,
    Cancel,
    Discard,
    JobContext,
    RateLimited,
    Snooze,
    handler,
    job,
)

from . import dangerous as dangerous
from . import hostile_jobs as hostile_jobs
from . import ledger_jobs as ledger_jobs
from . import leftover_jobs as leftover_jobs
from . import rehearsed as rehearsed
from .models import Effect

logger = logging.getLogger("tests.testapp")


@job
def nothing() -> None:
    """Succeed at once."""


@job
def add(x: int, y: int = 1) -> int:
    return x + y


@job
async def add_async(x: int, y: int = 1) -> int:
    await asyncio.sleep(0)
    return x + y


@job(takes_context=True)
def leave_effect(context: JobContext, name: str) -> str:
    Effect.objects.create(name=name, job_id=context.job_id)
    return name


@job(takes_context=True)
async def leave_effect_async(context: JobContext, name: str) -> str:
    await Effect.objects.acreate(name=name, job_id=context.job_id)
    return name


@job(takes_context=True, atomic=True)
def leave_effect_atomically(
    context: JobContext, name: str, fail: bool = False, touch: str = "", until: str = ""
) -> None:
    Effect.objects.create(name=name, job_id=context.job_id)
    nothing.using(queue="follow-up").enqueue()
    touch_and_wait(touch, until)
    if fail:
        raise ValueError("after the effect")


@job(databases=["default", "business"], takes_context=True, max_attempts=1)
def leave_effects_on_both(context: JobContext, name: str, fail: bool = False) -> None:
    Effect.objects.using("default").create(name=name, job_id=context.job_id)
    Effect.objects.using("business").create(name=name, job_id=context.job_id)
    if fail:
        raise ValueError("after both effects")


@job(backoff=0)
def fail(message: str = "it failed") -> None:
    raise ValueError(message)


@job(max_attempts=5, backoff=0, takes_context=True)
def fail_until(context: JobContext, attempt: int) -> int:
    if context.attempt < attempt:
        raise ConnectionError(f"attempt {context.attempt}")
    return context.attempt


@job(retry_on=ConnectionError)
def fail_for_good() -> None:
    raise KeyError("not worth another try")


@job
def discard_itself() -> None:
    raise Discard("not wanted")


@job
def cancel_itself() -> None:
    raise Cancel("not needed any more")


@job(takes_context=True)
def snooze_once(context: JobContext, seconds: float = 0.0) -> int:
    if not Effect.objects.filter(job_id=context.job_id).exists():
        Effect.objects.create(name="snoozed", job_id=context.job_id)
        raise Snooze(seconds)
    return context.attempt


@job(takes_context=True)
def rate_limit_once(context: JobContext) -> int:
    if not Effect.objects.filter(job_id=context.job_id).exists():
        Effect.objects.create(name="limited", job_id=context.job_id)
        raise RateLimited(0)
    return context.attempt


@job
def exit_python() -> None:
    raise SystemExit(3)


@job
def return_unserializable() -> Any:
    return object()


@job(takes_context=True)
def lose_the_connection(context: JobContext) -> None:
    if not Effect.objects.filter(job_id=context.job_id).exists():
        Effect.objects.create(name="lost connection", job_id=context.job_id)
        cause = _make_connection_error()
        raise OperationalError("server closed the connection") from cause


def _make_connection_error() -> Exception:
    import psycopg

    return psycopg.OperationalError("server closed the connection unexpectedly")


@job(timeout=0.2, max_attempts=1)
def loop_for_ever() -> None:
    while True:
        time.sleep(0.01)


@job(timeout=0.2, max_attempts=1)
async def await_for_ever() -> None:
    await asyncio.Event().wait()


@job(timeout=0.2, max_attempts=1)
async def leave_calls_in_threads(until: str, calls: int = 1) -> None:
    """Time out in calls that end when a file exists."""

    def wait() -> None:
        while not Path(until).exists():
            time.sleep(0.01)

    threads = [asyncio.to_thread(wait) for _ in range(calls)]
    await asyncio.gather(sync_to_async(wait)(), *threads)


@job(timeout=5, max_attempts=1)
async def call_in_threads(name: str) -> int:
    """Use both kinds of threads that async code can call."""
    await asyncio.to_thread(time.sleep, 0)
    await Effect.objects.acreate(name=name)
    return threading.get_ident()


@job(takes_context=True)
def wait_for_file(context: JobContext, touch: str, until: str) -> bool:
    """Touch a file, then wait for another or for the worker to stop."""
    Path(touch).touch()
    while not Path(until).exists() and not context.stopping:
        time.sleep(0.01)
    return Path(until).exists()


@job
def ignore_everything(touch: str, until: str) -> None:
    """Run until a file exists, whatever the worker asks."""
    touch_and_wait(touch, until)


@job(takes_context=True)
def end_as(context: JobContext, outcome: str, touch: str, until: str) -> str:
    """Wait for a file, then end with the given outcome."""
    touch_and_wait(touch, until)
    match outcome:
        case "retry":
            raise ConnectionError
        case "snooze":
            raise Snooze(60)
        case "cancel":
            raise Cancel("late")
        case "death":
            raise Discard("late")
        case "progress":
            context.progress(0.9, "late")
            time.sleep(0.3)
    return outcome


@job
async def await_file(touch: str, until: str) -> None:
    Path(touch).touch()
    while not Path(until).exists():
        await asyncio.sleep(0.01)


@job(takes_context=True)
def report_progress(context: JobContext, touch: str = "", until: str = "") -> str:
    context.progress(0.5, "half way")
    touch_and_wait(touch, until)
    context.progress(1, "done")
    return context.idempotency_key("mail")


@job(takes_context=True)
def append_line(context: JobContext, path: str, line: str = "") -> None:
    """Write to a ledger outside the database, whatever the outcome of the attempt."""
    text = line or str(context.job_id)
    with open(path, "a", buffering=1) as ledger:
        ledger.write(f"{text}\n")


@job(takes_context=True)
def log_text(context: JobContext, text: str) -> None:
    logger.warning("own logger: %s", text)
    context.logger.warning("context logger: %s", text)


@job
def return_thread_name() -> str:
    return threading.current_thread().name


@job
async def touch_the_orm_async(name: str) -> int:
    await sync_to_async(Effect.objects.create)(name=name)
    return await Effect.objects.filter(name=name).acount()


@job
def leave_a_transaction_open() -> int:
    from django.db import connection, transaction

    transaction.atomic().__enter__()
    Effect.objects.create(name="never committed")
    return id(connection)


@job
def return_backend_pid() -> int:
    """Return the process id of the PostgreSQL backend that serves this thread."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@job
def sleep_briefly(seconds: float) -> None:
    time.sleep(seconds)


@job
async def sleep_briefly_async(seconds: float) -> None:
    await asyncio.sleep(seconds)


@job
def return_pid() -> int:
    return os.getpid()


@handler("testapp.email", queue="mail")
class EmailHandler(BaseHandler):
    def execute(self, params: dict[str, Any]) -> str:
        return f"{self.context.attempt} to {params['to']}"


@handler("testapp.async_email", queue="mail")
class AsyncEmailHandler(BaseHandler):
    async def execute(self, params: dict[str, Any]) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return f"{self.context.job_id == UUID(str(self.context.job_id))} {params['to']}"


def touch_and_wait(touch: str, until: str) -> None:
    """Touch one file and wait for another; empty names: do nothing."""
    if touch:
        Path(touch).touch()
    while until and not Path(until).exists():
        time.sleep(0.005)


@job(atomic=True, takes_context=True, max_attempts=1)
def report_progress_atomically(context: JobContext) -> None:
    """Report progress five times after the snapshot of the transaction was taken."""
    Effect.objects.create(name="progress", job_id=context.job_id)
    for step in range(1, 6):
        context.progress(step / 5, f"step {step}")
        time.sleep(0.1)


@job(atomic=True, takes_context=True, max_attempts=1)
def meet_conflicts(context: JobContext, ledger: str, conflicts: int) -> int:
    """Leave an effect, then fail `conflicts` times with a serialization failure."""
    import psycopg.errors

    Effect.objects.create(name="conflict", job_id=context.job_id)
    with open(ledger, "a") as file:
        file.write("x")
    runs = Path(ledger).stat().st_size
    if runs <= conflicts:
        cause = psycopg.errors.SerializationFailure("could not serialize access")
        raise OperationalError("could not serialize access") from cause
    return runs


@job(takes_context=True, max_attempts=1)
def check_ownership(context: JobContext, touch: str, until: str) -> int:
    context.assert_owned()
    touch_and_wait(touch, until)
    context.assert_owned()
    return context.fence


@job(takes_context=True)
async def check_ownership_async(context: JobContext) -> int:
    await context.aassert_owned()
    return context.fence


@job(timeout=0.2, max_attempts=1)
def query_for_ever() -> None:
    """Wait in C, where no Python exception is raised."""
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_sleep(100)")
        else:
            cursor.execute(
                "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
                " SELECT count(*) FROM n"
            )
            cursor.fetchall()
