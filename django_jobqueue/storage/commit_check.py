"""Commit check: what became of a COMMIT whose reply was lost. Reads only.

Called by worker/running/call.py for an atomic job that raised after it had written its
own end. Its connection is closed by then, but the old backend may still be committing.
The row is read under a lock, which waits for that transaction to end; a plain read
could come before the commit. The portable finish of an atomic job locks its row here.
"""

from __future__ import annotations

import random
import time
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, connections

from ..backoff import growing_pauses
from ..models import DeadJob, Job
from ..states import JobStatus
from .claims import Claim
from .database import Database

# How long to retry while the database is away. Then the finish loop takes over. It has
# no time limit, and its fence recognises an attempt that has ended already.
RETRY_FOR = timedelta(seconds=15)
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0


class CommitState(Enum):
    """What became of the transaction that ended an attempt."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    # The job was taken away from this attempt.
    LOST = "lost"
    # The database did not answer.
    UNKNOWN = "unknown"


def check_commit(
    db: Database, claim: Claim, *, worker_id: UUID, retry_for: timedelta = RETRY_FOR
) -> CommitState:
    """Tell whether the transaction in which a claim wrote its end has committed.

    Waits for that transaction to end, and retries for `retry_for` while the database is
    away. Uses Django's connection of this thread, outside any transaction; it must not
    be the connection of the transaction in question.
    """
    deadline = time.monotonic() + retry_for.total_seconds()
    for pause in growing_pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
        try:
            return _read_state(db, claim, worker_id=worker_id)
        except (DatabaseError, InterfaceError):
            connections[db.alias].close()
        if time.monotonic() + pause > deadline:
            break
        time.sleep(pause * (0.5 + random.random() / 2))
    return CommitState.UNKNOWN


def lock_owned(db: Database, claim: Claim, *, worker_id: UUID) -> bool:
    """Lock a claim's job until the transaction ends; False if it was taken away."""
    is_ours = (JobStatus.RUNNING, claim.lease_token, worker_id)
    row = _lock_job(db, claim)
    return row is not None and row[:3] == is_ours


def _read_state(db: Database, claim: Claim, *, worker_id: UUID) -> CommitState:
    """Read the job once, under a lock. Raises what the database raises."""
    with db.atomic():
        _limit_wait(db)
        row = _lock_job(db, claim)
        is_gone = row is None and not _is_anywhere(db, claim)
    if is_gone:
        # Only ended jobs are pruned, or deleted as they end under RETENTION 0. Ours was
        # running under our token when its end was written, and such a job is taken away
        # only if its worker was silent for a whole TTL.
        return CommitState.COMMITTED
    match row:
        case (JobStatus.SUCCEEDED, claim.lease_token, _, by) if by == worker_id:
            return CommitState.COMMITTED
        case (JobStatus.RUNNING, claim.lease_token, owner, _) if owner == worker_id:
            return CommitState.ROLLED_BACK
        case _:
            return CommitState.LOST


# A backend whose client is gone may hold the row until the server notices.
LIMIT_WAIT = """
    SET LOCAL lock_timeout = '5s'
"""


def _limit_wait(db: Database) -> None:
    connection = connections[db.alias]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(LIMIT_WAIT)


def _lock_job(db: Database, claim: Claim) -> tuple[Any, ...] | None:
    """Wait for the row if it is locked, unlike the transitions, which skip it."""
    features = connections[db.alias].features
    rows = Job.objects.using(db.alias).select_for_update(
        no_key=features.has_select_for_no_key_update
    )
    columns = rows.values_list("status", "lease_token", "worker_id", "finished_by")
    row: tuple[Any, ...] | None = columns.filter(pk=claim.id).first()
    return row


def _is_anywhere(db: Database, claim: Claim) -> bool:
    """Read both tables in one statement: between two reads it may be requeued."""
    live = Job.objects.using(db.alias).filter(pk=claim.id)
    dead = DeadJob.objects.using(db.alias).filter(pk=claim.id)
    return bool(live.values_list("pk").union(dead.values_list("pk")).exists())
