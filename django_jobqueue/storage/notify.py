"""NOTIFY: wakes workers that listen. Only an accelerator: workers also poll.

Every transition that makes a job pending notifies with the queue and the lowest rank,
after the caller's transaction: inside, PostgreSQL would serialise the commits.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db import connections, transaction

from ..options import QUEUE_NAME
from .database import Database

# A woken worker polls again for this long, so a producer need not notify again.
WINDOW_SECONDS = 0.05
# An idle worker that listens polls every 15 s; jobs due before that need a notice.
SOON_SECONDS = 20.0
# A message holds 8000 bytes: so many names of 64 characters with their ranks fit.
MESSAGE_QUEUES = 50

# Own transaction, synchronous_commit off: a lost NOTIFY is harmless. Inside a caller's
# transaction this would make its commit asynchronous too.
NOTIFY = """
    SELECT
        set_config('synchronous_commit', 'off', true),
        pg_notify('jobqueue', %(message)s)
"""

_sent: dict[tuple[str, str], tuple[float, int]] = {}
_sent_lock = threading.Lock()


def notify_pending(db: Database, ranks: dict[str, int]) -> None:
    """Notify listening workers of pending jobs: {queue: lowest rank}.

    Like notify_due() and notify_cancel(), outside any transaction.
    """
    if db.is_postgres and ranks:
        # Listeners ignore names that enqueue would refuse.
        items = [item for item in ranks.items() if QUEUE_NAME.fullmatch(item[0])]
        for start in range(0, len(items), MESSAGE_QUEUES):
            part = dict(items[start : start + MESSAGE_QUEUES])
            message = json.dumps({"pending": part})
            db.execute(NOTIFY, {"message": message})


def notify_due(db: Database, seconds: float) -> None:
    """Notify idle workers of a job that is due before their next poll."""
    if db.is_postgres:
        db.execute(NOTIFY, {"message": json.dumps({"due": round(seconds, 3)})})


def notify_cancel(db: Database, job_id: UUID, worker_id: UUID) -> None:
    """Notify a worker that one of its jobs is to be cancelled."""
    if db.is_postgres:
        message = json.dumps({"cancel": str(job_id), "worker": str(worker_id)})
        db.execute(NOTIFY, {"message": message})


def notify_on_commit(alias: str, queue: str, rank: int) -> None:
    """Notify listening workers of a pending job once the caller has committed."""
    # Most were sent already. Inside a transaction the time of the commit is unknown.
    if connections[alias].in_atomic_block or _is_news(alias, queue, rank):
        _after_commit(alias, lambda notice: notice.add_pending(queue, rank))


def notify_due_on_commit(alias: str, seconds: float) -> None:
    """Notify idle workers of a job due soon, once the caller has committed."""
    if seconds < SOON_SECONDS:
        _after_commit(alias, lambda notice: notice.add_due(seconds))


class _Notice:
    """The on_commit hook of one transaction."""

    def __init__(self, alias: str) -> None:
        # Django names a failing hook by this in its log, and only functions have it.
        self.__qualname__ = type(self).__qualname__
        self.alias = alias
        self.ranks: dict[str, int] = {}
        # Monotonic time of the first job that is due soon.
        self.due: float | None = None

    def add_pending(self, queue: str, rank: int) -> None:
        self.ranks[queue] = min(rank, self.ranks.get(queue, rank))

    def add_due(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        self.due = due if self.due is None else min(due, self.due)

    def __call__(self) -> Any:
        """Send the notices. Django calls hooks outside any transaction."""
        db = Database(alias=self.alias)
        with _sent_lock:
            news = {
                queue: rank
                for queue, rank in self.ranks.items()
                if _is_news(self.alias, queue, rank)
            }
            now = time.monotonic()
            _sent.update({(self.alias, q): (now, rank) for q, rank in news.items()})
        notify_pending(db, news)
        if self.due is not None:
            seconds = max(0.0, self.due - time.monotonic())
            notify_due(db, seconds)


def _is_news(alias: str, queue: str, rank: int) -> bool:
    """Tell whether to send: the first of a window, or a lower rank than the last."""
    sent_at, sent_rank = _sent.get((alias, queue), (-math.inf, rank))
    return rank < sent_rank or time.monotonic() - sent_at >= WINDOW_SECONDS


def _after_commit(alias: str, add: Callable[[_Notice], None]) -> None:
    """Add to the hook of this transaction, and register it if there is none yet.

    The hook is looked up in Django's own list: a flag would survive the rollback of a
    savepoint, the hook does not. In autocommit the hook runs at once.
    """
    connection = connections[alias]
    if connection.vendor != "postgresql":
        return
    open_savepoints = set(connection.savepoint_ids)
    for savepoints, hook, *_ in reversed(connection.run_on_commit):
        if isinstance(hook, _Notice) and savepoints <= open_savepoints:
            add(hook)
            return
    # With autocommit off, Django does not know when a commit happens: workers poll.
    if connection.in_atomic_block or connection.get_autocommit():
        notice = _Notice(alias)
        add(notice)
        transaction.on_commit(notice, using=alias, robust=True)
