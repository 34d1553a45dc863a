"""Waiting for the end of a job, without blocking anything but the caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections

from ..exceptions import JobDead, ResultsNotKept, WaitInTransaction, WaitTimeout
from ..models import DeadJob, Job
from ..options import get_options
from ..states import ENDED
from .find import find_job

FIRST_LOOK, LAST_LOOK = 0.01, 0.5


def wait_for_end(job: Job, timeout: timedelta | float | None) -> Job:
    """Look until the job has ended; see Job.wait()."""
    for delay in _pace(job.pk, timeout):
        ended = _look(job.pk)
        if ended is not None:
            return ended
        time.sleep(delay)
    raise AssertionError("unreachable: _pace() ends by raising")


async def await_end(job: Job, timeout: timedelta | float | None) -> Job:
    """Look until the job has ended, leaving the event loop free."""
    for delay in _pace(job.pk, timeout):
        ended = await sync_to_async(_look)(job.pk)
        if ended is not None:
            return ended
        await asyncio.sleep(delay)
    raise AssertionError("unreachable: _pace() ends by raising")


def _pace(job_id: UUID, timeout: timedelta | float | None) -> Iterator[float]:
    """Yield the pauses between looks: short at first, then twice as long each time."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    started = time.monotonic()
    delay = FIRST_LOOK
    while True:
        left = None if seconds is None else started + seconds - time.monotonic()
        yield delay if left is None else max(0.0, min(delay, left))
        if left is not None and left <= 0:
            raise WaitTimeout(f"The job {job_id} has not ended within {seconds:g} s.")
        delay = min(delay * 2, LAST_LOOK)


def _look(job_id: UUID) -> Job | None:
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
