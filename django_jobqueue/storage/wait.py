"""Waiting for the end of a job by polling; called by Job.wait() and await_end()."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections

from ..backoff import growing_pauses
from ..exceptions import JobDead, ResultsNotKept, WaitInTransaction, WaitTimeout
from ..models import DeadJob, Job, WorkerHeartbeat
from ..options import get_options
from ..states import ENDED
from .database import get_database
from .lookups import find_job

FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.01, 0.5


def wait_for_end(job: Job, timeout: timedelta | float | None) -> Job:
    """Poll until the job has ended; see Job.wait()."""
    for delay in _find_pauses(_count_seconds(timeout)):
        ended = _read_ended(job.pk)
        if ended is not None:
            return ended
        time.sleep(delay)
    raise _make_timeout(job, timeout)


async def await_end(job: Job, timeout: timedelta | float | None) -> Job:
    """Poll until the job has ended, without blocking the event loop."""
    for delay in _find_pauses(_count_seconds(timeout)):
        ended = await sync_to_async(_read_ended)(job.pk)
        if ended is not None:
            return ended
        await asyncio.sleep(delay)
    raise await sync_to_async(_make_timeout)(job, timeout)


def _count_seconds(timeout: timedelta | float | None) -> float | None:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else timeout


def _find_pauses(seconds: float | None) -> Iterator[float]:
    """Yield the pauses between polls, until the time is up."""
    started = time.monotonic()
    for delay in growing_pauses(FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS):
        left = None if seconds is None else started + seconds - time.monotonic()
        yield delay if left is None else max(0.0, min(delay, left))
        if left is not None and left <= 0:
            return


def _make_timeout(job: Job, timeout: timedelta | float | None) -> WaitTimeout:
    """Return the error, with a hint if no worker could have run the job."""
    text = f"The job {job.pk} has not ended within {_count_seconds(timeout):g} s."
    db = get_database()
    since = db.read_clock(None) - get_options().heartbeat_ttl
    workers = list(WorkerHeartbeat.objects.filter(last_seen_at__gte=since))
    if not workers:
        text += " No worker is running: start one with `python manage.py runworker`."
    elif not any(worker.serves(job.queue) for worker in workers):
        text += f" No worker serves its queue {job.queue!r}."
    return WaitTimeout(text)


def _read_ended(job_id: UUID) -> Job | None:
    """Return the job if it has ended. Raises JobDead or ResultsNotKept."""
    alias = get_options().database
    if connections[alias].in_atomic_block:
        raise WaitInTransaction
    job = find_job(alias, job_id)
    if isinstance(job, DeadJob):
        raise JobDead(f"The job {job_id} is dead ({job.reason}): {job.error}", job)
    if job is None:
        raise ResultsNotKept(
            f"The job {job_id} is gone: it has ended and was pruned, results are not "
            f"kept that long (JOBQUEUE['RETENTION']), or its enqueue was rolled back."
        )
    return job if job.status in ENDED else None
