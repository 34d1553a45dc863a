"""capture_jobs(): a list of the jobs that a block of code enqueues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from ..models import Job
from ..storage import test_hooks


@contextmanager
def capture_jobs() -> Iterator[list[Job]]:
    """Yield a list that fills with the jobs enqueued in the block.

    Includes enqueue_many() and what jobs enqueue that run inside. An enqueue that found
    a live job with its unique key adds nothing. When the block ends, jobs whose
    transaction or savepoint was rolled back are removed.
    """
    jobs: list[Job] = []
    trackers: list[_RollbackTracker] = []

    def on_enqueued(new: Sequence[Job]) -> None:
        jobs.extend(new)
        trackers.extend(_RollbackTracker(job) for job in new)

    # First in the list: eager_jobs() runs jobs, and their children come after them.
    test_hooks.listeners.insert(0, on_enqueued)
    try:
        yield jobs
    finally:
        test_hooks.listeners.remove(on_enqueued)
        gone = {tracker.job.pk for tracker in trackers if tracker.is_rolled_back()}
        jobs[:] = [job for job in jobs if job.pk not in gone]


class _RollbackTracker:
    """Finds out whether the transaction of a job was rolled back, without a query.

    Django drops the on_commit() hooks of a savepoint that is rolled back.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._has_committed = False
        self._connection: Any = connections[job._state.db or "default"]
        # With set_autocommit(False) Django runs no on_commit() hooks.
        self._is_known = (
            self._connection.in_atomic_block or self._connection.get_autocommit()
        )
        self._hook: Callable[[], None] = self._note_commit
        if self._is_known:
            transaction.on_commit(self._hook, using=self._connection.alias)

    def _note_commit(self) -> None:
        self._has_committed = True

    def is_rolled_back(self) -> bool:
        if not self._is_known or self._has_committed:
            return False
        hooks = [hook for _savepoints, hook, *_ in self._connection.run_on_commit]
        return not any(hook is self._hook for hook in hooks)
