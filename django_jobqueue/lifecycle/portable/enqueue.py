"""Enqueue with the ORM: one INSERT.

Called by lifecycle/enqueue.py on databases other than PostgreSQL.
"""

from __future__ import annotations

from datetime import datetime

from django.db import IntegrityError, connections

from ...models import Job
from ...options import Options
from ...storage.database import Database
from ...storage.new_jobs import NewJob, plan_job


def insert_job(
    db: Database, new: NewJob, options: Options, now: datetime | None
) -> Job | None:
    """Insert one job; None if its unique key or its id is taken."""
    job = plan_job(db, new, db.read_clock(now), options)
    rows = Job.objects.using(db.alias)
    if new.options.unique_key is not None:
        # In one transaction: a quick worker may end and remove the job between the two.
        with db.atomic():
            rows.bulk_create([job], ignore_conflicts=True)
            return job if rows.filter(pk=new.id).exists() else None
    # Django 6.0.0 asks an SQLite connection for its limits before it has connected.
    connections[db.alias].ensure_connection()
    try:
        # Nothing but its id can conflict here, and no other fault may be ignored.
        with db.shielded():
            rows.bulk_create([job])
    except IntegrityError:
        return None
    return job
