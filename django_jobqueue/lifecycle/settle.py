"""Settle: what became of a COMMIT whose reply did not come. Reads; moves nothing.

Called by worker/run.py for an atomic job that raised after it had written its own
end. Its connection is closed by then, but the old backend may still be committing. So
the row is read under a lock, which waits for that transaction to end; a plain read
could come before the commit. The portable finish locks the row of such a job here too.
"""

from __future__ import annotations

import random
import time
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections

from ..models import DeadJob, Job
from ..states import JobStatus
from .claim import Claim
from .database import Database

# How long to ask a database that is away. Then the finish loop takes over, which has
# all the time there is, and whose fence knows an attempt that has ended by itself.
PATIENCE = timedelta(seconds=15)
LONGEST_PAUSE = 1.0


class Fate(Enum):
    """What the database says of a transaction that ended an attempt."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    # The job was taken away from this attempt.
    LOST = "lost"
    # The database did not say.
    UNKNOWN = "unknown"


def settle_commit(
    db: Database, claim: Claim, *, worker_id: UUID, patience: timedelta = PATIENCE
) -> Fate:
    """Tell whether the transaction in which a claim wrote its end has committed.

    Waits for that transaction to end, and asks again while the database is away, for
    `patience` in all. On Django's connection of this thread, which must not be the one
    of that transaction, outside any other.
    """
    deadline = time.monotonic() + patience.total_seconds()
    pause = 0.05
    while True:
        try:
            return _look(db, claim, worker_id=worker_id)
        except (DatabaseError, InterfaceError):
            connections[db.alias].close()
        if time.monotonic() + pause > deadline:
            return Fate.UNKNOWN
        time.sleep(pause * (0.5 + random.random() / 2))
        pause = min(LONGEST_PAUSE, pause * 2)


def lock_owned(db: Database, claim: Claim, *, worker_id: UUID) -> bool:
    """Lock a claim's job until the transaction ends; False if it was taken away."""
    is_ours = (JobStatus.RUNNING, claim.lease_token, worker_id)
    row = _lock_job(db, claim)
    return row is not None and row[:3] == is_ours


def _look(db: Database, claim: Claim, *, worker_id: UUID) -> Fate:
    """Read the job once, under a lock. Raises what the database raises."""
    with db.atomic():
        _limit_wait(db)
        row = _lock_job(db, claim)
        is_gone = row is None and not _is_anywhere(db, claim)
    if is_gone:
        # Only ended jobs are pruned, or deleted as they end under RETENTION 0. Ours was
        # running under our token when its end was written, and nobody takes such a job
        # away unless its worker was silent for a whole TTL.
        return Fate.COMMITTED
    match row:
        case (JobStatus.SUCCEEDED, claim.lease_token, _, by) if by == worker_id:
            return Fate.COMMITTED
        case (JobStatus.RUNNING, claim.lease_token, owner, _) if owner == worker_id:
            return Fate.ROLLED_BACK
        case _:
            return Fate.LOST


# A backend whose client has vanished may hold the row until the server finds out.
LIMIT_WAIT = """
    SET LOCAL lock_timeout = '5s'
"""


def _limit_wait(db: Database) -> None:
    connection = connections[db.alias]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(LIMIT_WAIT)


def _lock_job(db: Database, claim: Claim) -> tuple[Any, ...] | None:
    """Wait for whoever holds the row; unlike the arrows, which pass over it."""
    features = connections[db.alias].features
    rows = Job.objects.using(db.alias).select_for_update(
        no_key=features.has_select_for_no_key_update
    )
    columns = rows.values_list("status", "lease_token", "worker_id", "finished_by")
    row: tuple[Any, ...] | None = columns.filter(pk=claim.id).first()
    return row


def _is_anywhere(db: Database, claim: Claim) -> bool:
    """Look into both tables at one moment: between two looks it may be requeued."""
    live = Job.objects.using(db.alias).filter(pk=claim.id)
    dead = DeadJob.objects.using(db.alias).filter(pk=claim.id)
    return bool(live.values_list("pk").union(dead.values_list("pk")).exists())
