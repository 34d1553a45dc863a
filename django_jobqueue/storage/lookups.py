"""Lookups of one job by its id, live or dead."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ..models import DeadJob, Job
from ..states import TASK_META
from .database import Database


def find_job(alias: str, job_id: UUID) -> Job | DeadJob | None:
    """Return the job, live or dead, or None if it is in neither table."""
    live = Job.objects.using(alias).filter(pk=job_id)
    dead = DeadJob.objects.using(alias).filter(pk=job_id)
    # It may be requeued between the first two reads.
    found: Job | DeadJob | None = live.first() or dead.first() or live.first()
    return found


def is_task(db: Database, job_id: UUID) -> bool:
    """Tell whether the row of a job says that it was enqueued through django.tasks."""
    return TASK_META in read_meta(db, job_id)


def read_meta(db: Database, job_id: UUID) -> dict[str, Any]:
    """Return the `meta` of a live job, as it was enqueued."""
    meta = Job.objects.using(db.alias).filter(pk=job_id).values_list("meta", flat=True)
    return meta.first() or {}
