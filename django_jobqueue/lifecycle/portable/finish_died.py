"""Finish, running → dead, with the ORM: moves one locked job to the dead jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from ...models import DeadJob, Job
from ...models.record import COLUMNS, make_id
from ...outcomes import Died
from ...states import SHARED_ID_META
from ...storage.database import Database


def write_died(
    db: Database, job: Job, death: Died, written: dict[str, Any], *, now: datetime
) -> UUID:
    """Move one job; `written` are the columns that the end of its attempt changes.

    Return the id of the dead job.
    """
    columns = {name: getattr(job, name) for name in COLUMNS} | written
    dead_jobs = DeadJob.objects.using(db.alias)
    dead_id = job.pk
    if dead_jobs.filter(pk=job.pk).exists():
        dead_id = make_id()
        meta = job.meta if isinstance(job.meta, dict) else {}
        columns |= {"id": dead_id, "meta": {**meta, SHARED_ID_META: str(job.pk)}}
    dead_job = DeadJob(
        **columns
        | {
            "error": death.failure.short,
            "reason": death.reason,
            "fingerprint": death.failure.fingerprint,
            "died_at": now,
        }
    )
    dead_jobs.bulk_create([dead_job])
    Job.objects.using(db.alias).filter(pk=job.pk).delete()
    return dead_id
