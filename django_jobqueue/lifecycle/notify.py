"""NOTIFY: wake workers that listen. Only an accelerator: polling runs below it.

Every arrow that makes a job pending notifies with the queue and the lowest rank. Never
inside the caller's transaction (PostgreSQL would serialise such commits): after it.
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

from .database import Database

# A woken worker looks again for this long, so a producer need not repeat itself.
WINDOW = 0.05
# An idle worker that listens looks every 15 s; what is due before must be said.
SOON = 20.0

NOTIFY = """
    SELECT pg_notify('jobqueue', %(message)s)
"""

# In a transaction of its own that waits for no disk: nothing is lost with a word.
NOTIFY_ALONE = """
    SELECT
        set_config('synchronous_commit', 'off', true),
        pg_notify('jobqueue', %(message)s)
"""

_sent: dict[tuple[str, str], tuple[float, int]] = {}
_sent_lock = threading.Lock()


def notify_pending(
    db: Database, ranks: dict[str, int], *, statement: str = NOTIFY
) -> None:
    """Tell listening workers of pending jobs: {queue: lowest rank}."""
    if db.is_postgres and ranks:
        # 8000 bytes is the most a message holds; 50 names of 64 characters fit.
        items = list(ranks.items())
        for start in range(0, len(items), 50):
            message = json.dumps({"pending": dict(items[start : start + 50])})
            db.execute(statement, {"message": message})


def notify_due(db: Database, seconds: float, *, statement: str = NOTIFY) -> None:
    """Tell idle workers of a job that is due before they would look again."""
    if db.is_postgres:
        db.execute(statement, {"message": json.dumps({"due": round(seconds, 3)})})


def notify_cancel(db: Database, job_id: UUID, worker_id: UUID) -> None:
    """Tell a worker that one of its jobs is asked to stop."""
    if db.is_postgres:
        message = json.dumps({"cancel": str(job_id), "worker": str(worker_id)})
        db.execute(NOTIFY, {"message": message})


def notify_on_commit(alias: str, queue: str, rank: int) -> None:
    """Tell listening workers of a pending job once the caller has committed."""
    # Most are said already; inside a transaction nobody knows when it will commit.
    if connections[alias].in_atomic_block or _is_news(alias, queue, rank):
        _after_commit(alias, lambda notice: notice.add_pending(queue, rank))


def notify_due_on_commit(alias: str, seconds: float) -> None:
    """Tell idle workers of a job that is due soon, once the caller has committed."""
    if seconds < SOON:
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
        """Say it. Django calls hooks outside of any transaction."""
        db = Database(alias=self.alias)
        with _sent_lock:
            news = {
                queue: rank
                for queue, rank in self.ranks.items()
                if _is_news(self.alias, queue, rank)
            }
            now = time.monotonic()
            _sent.update({(self.alias, q): (now, rank) for q, rank in news.items()})
        notify_pending(db, news, statement=NOTIFY_ALONE)
        if self.due is not None:
            seconds = max(0.0, self.due - time.monotonic())
            notify_due(db, seconds, statement=NOTIFY_ALONE)


def _is_news(alias: str, queue: str, rank: int) -> bool:
    """Leading edge only, but a rank lower than the last one sent goes out."""
    sent_at, sent_rank = _sent.get((alias, queue), (-math.inf, rank))
    return rank < sent_rank or time.monotonic() - sent_at >= WINDOW


def _after_commit(alias: str, add: Callable[[_Notice], None]) -> None:
    """Add to the hook of this transaction, registering it if there is none yet.

    Whether there is one is read from Django's own list: a flag would survive the
    rollback of a savepoint, the hook does not. In autocommit the hook runs at once.
    """
    connection = connections[alias]
    if connection.vendor != "postgresql":
        return
    open_savepoints = set(connection.savepoint_ids)
    for savepoints, hook, *_ in reversed(connection.run_on_commit):
        if isinstance(hook, _Notice) and savepoints <= open_savepoints:
            add(hook)
            return
    # With autocommit switched off by hand there is no commit Django knows of: polling.
    if connection.in_atomic_block or connection.get_autocommit():
        notice = _Notice(alias)
        add(notice)
        transaction.on_commit(notice, using=alias, robust=True)
