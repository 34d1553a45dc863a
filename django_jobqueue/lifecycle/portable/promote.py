"""Promote with the ORM, in one transaction: scheduled → pending, when due.

Called by lifecycle/promote.py on databases other than PostgreSQL, and for a promotion
row by row on any database.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import UUID

from django.db.models import QuerySet

from ...models import Job
from ...states import JobStatus
from ...storage.database import Database, leave_out, make_rank
from ...storage.endings import NO_RANK

# Id, job type, queue and rank, as PROMOTE_JOBS returns them.
Row: TypeAlias = tuple[UUID, str, str, int]


def promote_jobs(
    db: Database,
    *,
    limit: int,
    aging: timedelta,
    passed: Sequence[UUID],
    now: datetime | None,
) -> list[Row]:
    """Make up to `limit` due jobs pending and return them."""
    now = db.read_clock(now)
    due = find_due(db, now, passed)
    # Without this read an idle worker would take SQLite's only write lock each time.
    if not due.exists():
        return []
    with db.atomic():
        return promote_rows(db, due.order_by("run_at"), aging, now, limit=limit)


def promote_rows(
    db: Database,
    due: QuerySet[Job],
    aging: timedelta,
    now: datetime,
    *,
    limit: int = 1,
) -> list[Row]:
    """Lock due rows and make them pending. Needs a transaction."""
    jobs = list(db.lock_rows(due)[:limit])
    for job in jobs:
        if not job.lease_token or job.rank == NO_RANK:
            job.rank = make_rank(job.run_at, now, priority=job.priority, aging=aging)
        rows = Job.objects.using(db.alias).filter(pk=job.pk, status=JobStatus.SCHEDULED)
        if not rows.update(status=JobStatus.PENDING, rank=job.rank):
            # See _take_jobs() in claim.py.
            raise ValueError("the id of a job is not written as it is read")
    return [(job.pk, job.job_type, job.queue, job.rank) for job in jobs]


def find_due(db: Database, now: datetime, passed: Sequence[UUID] = ()) -> QuerySet[Job]:
    """Return the scheduled jobs whose time has come."""
    due = Job.objects.using(db.alias).filter(
        status=JobStatus.SCHEDULED, run_at__lte=now
    )
    return leave_out(due, passed)
