"""Enqueue in bulk with the ORM: one chunk.

Called by lifecycle/enqueue_many.py on databases other than PostgreSQL.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ...models import Job
from ...options import Options
from ...storage.database import Database
from ...storage.new_jobs import NewJob, plan_job

# Ids in one statement: some SQLite builds take no more than 999 parameters.
STATEMENT_JOBS = 500


def insert_jobs(
    db: Database, news: list[NewJob], options: Options, *, now: datetime
) -> set[UUID]:
    """Insert jobs; return the ids of those with a unique key that are new."""
    jobs = [plan_job(db, new, now, options) for new in news]
    rows = Job.objects.using(db.alias)
    keyed = [job for job in jobs if job.unique_key is not None]
    rows.bulk_create([job for job in jobs if job.unique_key is None])
    rows.bulk_create(keyed, ignore_conflicts=True)
    created: set[UUID] = set()
    for start in range(0, len(keyed), STATEMENT_JOBS):
        ids = [job.pk for job in keyed[start : start + STATEMENT_JOBS]]
        created |= set(rows.filter(pk__in=ids).values_list("pk", flat=True))
    return created
