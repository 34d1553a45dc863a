"""The rows of queues: the names of all queues that workers have found jobs in.

The worker's claim loop writes them for the admin, and reads them when its poll of the
backlog timed out.
"""

from __future__ import annotations

from ..models import Queue
from .database import Database

REMEMBER_QUEUES = """
    INSERT INTO jobqueue_queue (name)
    SELECT name
    FROM unnest(%(names)s::text[]) AS new (name)
    ORDER BY name
    ON CONFLICT (name) DO NOTHING
    RETURNING name
"""


def remember_queues(db: Database, names: list[str]) -> None:
    """Make rows for queues that were not known yet."""
    if db.is_postgres:
        db.execute(REMEMBER_QUEUES, {"names": names})
        return
    rows = [Queue(name=name) for name in names]
    Queue.objects.using(db.alias).bulk_create(rows, ignore_conflicts=True)


READ_QUEUES = """
    SELECT name
    FROM jobqueue_queue
    ORDER BY name
"""


def read_queues(db: Database) -> list[str]:
    """Return the queues that workers have found jobs in so far."""
    if db.is_postgres:
        return [name for (name,) in db.execute(READ_QUEUES, {}, is_rare=True)]
    names = Queue.objects.using(db.alias).order_by("name")
    return list(names.values_list("name", flat=True))
