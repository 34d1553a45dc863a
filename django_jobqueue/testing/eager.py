"""eager_jobs(): jobs run at once when they are enqueued.

Each through run_jobs(), in the transaction of whoever enqueues it: a TestCase never
commits, so there is nothing to wait for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from ..lifecycle import seams
from ..models import Job
from ..states import JobStatus
from .block import Block
from .run import RUNAWAY, RunawayJobs, run_job


def eager_jobs(*, raise_errors: bool = True) -> EagerJobs:
    """Run each job enqueued inside at once, one attempt, before enqueue() returns.

    What it raises is raised to who enqueues, unless `raise_errors=False`. Jobs that a
    job enqueues run when that one has ended. Jobs of later, retries included, wait.
    A context manager and a decorator of a test.
    """
    return EagerJobs(raise_errors=raise_errors)


class EagerJobs(Block):
    """See eager_jobs()."""

    def __init__(self, *, raise_errors: bool) -> None:
        self._raise_errors = raise_errors
        self._line = _Line()

    def __enter__(self) -> None:
        seams.listeners.append(self._hear)

    def __exit__(self, *exc_info: object) -> None:
        seams.listeners.remove(self._hear)

    def _hear(self, jobs: Sequence[Job]) -> None:
        line = self._line
        line.waiting.extend(job for job in jobs if job.status == JobStatus.PENDING)
        if line.is_running:
            return
        line.is_running = True
        try:
            self._run_all(line)
        finally:
            line.is_running = False
            line.waiting.clear()

    def _run_all(self, line: _Line) -> None:
        count = 0
        while line.waiting:
            job = line.waiting.popleft()
            if count == RUNAWAY:
                raise RunawayJobs(
                    f"eager_jobs() has run {RUNAWAY:,} jobs for one enqueue(), and "
                    f"there is more to do: {job.job_type}. A job that enqueues itself "
                    f"never comes to an end; use capture_jobs(), or run_jobs(limit=…)."
                )
            count += 1
            run_job(job, raise_errors=self._raise_errors)
            _refresh(job)


class _Line(threading.local):
    """The jobs that wait for the one that runs, in this thread."""

    def __init__(self) -> None:
        self.waiting: deque[Job] = deque()
        self.is_running = False


def _refresh(job: Job) -> None:
    """Let the Job that enqueue() returns say how it ended; a dead one is not there."""
    if Job.objects.using(job._state.db).filter(pk=job.pk).exists():
        job.refresh_from_db()
