"""capture_jobs(): the jobs that a piece of code enqueues."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from ..lifecycle import seams
from ..models import Job


@contextmanager
def capture_jobs() -> Iterator[list[Job]]:
    """Give the list of the jobs enqueued inside, as they were when enqueued.

    Whatever way they came, enqueue_many() and jobs that run inside included, but
    without those that found a live one under their unique key. At the end of the block
    those are taken out whose transaction or savepoint was rolled back meanwhile.
    """
    jobs: list[Job] = []
    traces: list[_Trace] = []

    def note(new: Sequence[Job]) -> None:
        jobs.extend(new)
        traces.extend(_Trace(job) for job in new)

    # Before those who run the jobs at once: children come after their parents.
    seams.listeners.insert(0, note)
    try:
        yield jobs
    finally:
        seams.listeners.remove(note)
        gone = {trace.job.pk for trace in traces if trace.is_gone()}
        jobs[:] = [job for job in jobs if job.pk not in gone]


class _Trace:
    """What tells whether the transaction of a job was rolled back, without a query.

    Django drops the on_commit() hooks of a savepoint that is rolled back.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._has_committed = False
        self._connection: Any = connections[job._state.db or "default"]
        # With autocommit switched off by hand there is no commit Django knows of.
        self._is_known = (
            self._connection.in_atomic_block or self._connection.get_autocommit()
        )
        self._hook: Callable[[], None] = self._note_commit
        if self._is_known:
            transaction.on_commit(self._hook, using=self._connection.alias)

    def _note_commit(self) -> None:
        self._has_committed = True

    def is_gone(self) -> bool:
        if not self._is_known or self._has_committed:
            return False
        hooks = [hook for _savepoints, hook, *_ in self._connection.run_on_commit]
        return not any(hook is self._hook for hook in hooks)
