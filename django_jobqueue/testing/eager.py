"""eager_jobs(): runs each job inside enqueue().

Each job runs with the code of run_jobs(), in the caller's transaction: a TestCase never
commits, so there is no commit to wait for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from ..models import Job
from ..states import JobStatus
from ..storage import test_hooks
from .block import Block
from .run import MAX_ATTEMPTS_PER_RUN, RunawayJobs, run_job


def eager_jobs(*, raise_errors: bool = True) -> EagerJobs:
    """Run one attempt of each job in the block before enqueue() returns.

    What a handler raises, enqueue() raises, unless `raise_errors=False`. Jobs that a
    job enqueues run after it has ended. Scheduled jobs, retries included, do not run.
    A context manager and a decorator for tests.
    """
    return EagerJobs(raise_errors=raise_errors)


class EagerJobs(Block):
    """See eager_jobs()."""

    def __init__(self, *, raise_errors: bool) -> None:
        self._raise_errors = raise_errors
        self._waiting = _WaitingJobs()

    def __enter__(self) -> None:
        test_hooks.listeners.append(self._on_enqueued)

    def __exit__(self, *exc_info: object) -> None:
        test_hooks.listeners.remove(self._on_enqueued)

    def _on_enqueued(self, jobs: Sequence[Job]) -> None:
        waiting = self._waiting
        waiting.jobs.extend(job for job in jobs if job.status == JobStatus.PENDING)
        if waiting.is_running:
            return
        waiting.is_running = True
        try:
            self._run_all(waiting)
        finally:
            waiting.is_running = False
            waiting.jobs.clear()

    def _run_all(self, waiting: _WaitingJobs) -> None:
        count = 0
        while waiting.jobs:
            job = waiting.jobs.popleft()
            if count == MAX_ATTEMPTS_PER_RUN:
                raise RunawayJobs(
                    f"eager_jobs() has run {MAX_ATTEMPTS_PER_RUN:,} jobs for one "
                    f"enqueue(), and more are waiting: {job.job_type}. Does a job "
                    f"enqueue itself? Use capture_jobs(), or run_jobs(limit=…)."
                )
            count += 1
            run_job(job, raise_errors=self._raise_errors)
            _refresh(job)


class _WaitingJobs(threading.local):
    """The jobs of this thread that wait until the running one has ended."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.is_running = False


def _refresh(job: Job) -> None:
    """Refresh the Job that enqueue() returns. A dead job has no row to read."""
    if Job.objects.using(job._state.db).filter(pk=job.pk).exists():
        job.refresh_from_db()
