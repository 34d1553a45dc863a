"""Promote: scheduled → pending, when due.

Called by every worker's claim loop, for the jobs of all queues: the first worker that
is awake promotes for all. The rank is set here, since the job begins to wait now. A job
that its worker released or lost has waited before and keeps its rank.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connections

from ..storage.bounded_waits import bounded_waits
from ..storage.database import Database, count_microseconds
from ..storage.endings import NO_RANK
from ..storage.row_by_row import EACH_SECONDS, write_each
from .portable import promote as portable


class Promoted(NamedTuple):
    """A job that was made pending; a row of PROMOTE_JOBS."""

    id: UUID
    job_type: str
    queue: str
    rank: int


# The UPDATE keeps to the primary key for the same reason as in claim.py.
PROMOTE_JOBS = """
    WITH due AS MATERIALIZED (
        SELECT id
        FROM jobqueue_job
        WHERE
            status = 'scheduled'
            AND run_at <= (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))
            AND id <> ALL(%(passed)s::uuid[])
        ORDER BY run_at
        LIMIT %(limit)s::integer
        FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE jobqueue_job AS job
    SET
        status = 'pending',
        rank = CASE
            WHEN job.lease_token > 0 AND job.rank <> %(no_rank)s::bigint THEN job.rank
            ELSE (
                extract(
                    epoch FROM greatest(
                        job.run_at, coalesce(%(now)s::timestamptz, clock_timestamp())
                    )
                ) * 1000000
            )::bigint - job.priority * %(aging)s::bigint
        END
    WHERE
        job.id = ANY(ARRAY(SELECT id FROM due))
        AND job.status IS NOT DISTINCT FROM 'scheduled'
    RETURNING job.id, job.job_type, job.queue, job.rank
"""


def promote_jobs(
    db: Database,
    *,
    limit: int,
    aging: timedelta,
    passed: Sequence[UUID] = (),
    now: datetime | None = None,
) -> list[Promoted]:
    """Make up to `limit` due jobs pending and return them. Skips those in `passed`."""
    if not db.is_postgres:
        rows = portable.promote_jobs(
            db, limit=limit, aging=aging, passed=passed, now=now
        )
        return [Promoted(*row) for row in rows]
    parameters = {
        "limit": limit,
        "aging": count_microseconds(aging),
        "no_rank": NO_RANK,
        "passed": list(passed),
        "now": now,
    }
    return [Promoted(*row) for row in db.execute(PROMOTE_JOBS, parameters)]


class PromotedEach(NamedTuple):
    """What became of a promotion row by row."""

    promoted: list[Promoted]
    # {id: error} of the jobs that the database refused.
    refused: dict[UUID, str]


def promote_each(
    db: Database,
    *,
    limit: int,
    aging: timedelta,
    passed: Sequence[UUID] = (),
    now: datetime | None = None,
) -> PromotedEach:
    """Promote row by row and skip rows that fail; the fallback of promote_jobs().

    For a row that only the database can refuse, for example by a user's trigger, or
    whose trigger takes too long. Runs on Django's connection of this thread.
    """
    now = db.read_clock(now)
    deadline = time.monotonic() + EACH_SECONDS

    def promote(id: UUID) -> Promoted | None:
        row = portable.find_due(db, now).filter(pk=id)
        rows = portable.promote_rows(db, row, aging, now)
        return Promoted(*rows[0]) if rows else None

    try:
        with db.atomic(), bounded_waits(db):
            due = portable.find_due(db, now, passed).order_by("run_at")
            ids = list(due.values_list("pk", flat=True)[:limit])
        written, refused = write_each(db, ids, promote, limit=limit, deadline=deadline)
    finally:
        if db.own is not None:
            connections[db.alias].close()
    return PromotedEach(written, refused)
