"""Promote: scheduled → pending, when due.

Called by every worker's claim loop, for the jobs of all queues: whoever is awake first
does it for all. The rank is set here, since this is when the job begins to wait.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from ..models import Job
from ..states import JobStatus
from .database import Database, count_microseconds, make_rank


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
        ORDER BY run_at
        LIMIT %(limit)s::integer
        FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE jobqueue_job AS job
    SET
        status = 'pending',
        rank = (
            extract(
                epoch FROM greatest(
                    job.run_at, coalesce(%(now)s::timestamptz, clock_timestamp())
                )
            ) * 1000000
        )::bigint - job.priority * %(aging)s::bigint
    WHERE
        job.id = ANY(ARRAY(SELECT id FROM due))
        AND job.status IS NOT DISTINCT FROM 'scheduled'
    RETURNING job.id, job.job_type, job.queue, job.rank
"""


def promote_jobs(
    db: Database, *, limit: int, aging: timedelta, now: datetime | None = None
) -> list[Promoted]:
    """Make up to `limit` due jobs pending and return them."""
    if not db.is_postgres:
        return _promote_portable(db, limit=limit, aging=aging, now=now)
    parameters = {"limit": limit, "aging": count_microseconds(aging), "now": now}
    return [Promoted(*row) for row in db.execute(PROMOTE_JOBS, parameters)]


def _promote_portable(
    db: Database, *, limit: int, aging: timedelta, now: datetime | None
) -> list[Promoted]:
    now = db.read_clock(now)
    due = Job.objects.using(db.alias).filter(
        status=JobStatus.SCHEDULED, run_at__lte=now
    )
    # Without this look an idle worker would take SQLite's only write lock each time.
    if not due.exists():
        return []
    with db.atomic():
        jobs = list(db.lock_rows(due.order_by("run_at"))[:limit])
        for job in jobs:
            job.rank = make_rank(job.run_at, now, priority=job.priority, aging=aging)
            due.filter(pk=job.pk).update(status=JobStatus.PENDING, rank=job.rank)
    return [Promoted(job.pk, job.job_type, job.queue, job.rank) for job in jobs]
