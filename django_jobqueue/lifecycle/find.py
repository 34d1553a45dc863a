"""Find: one job by its id, whichever of the two tables it lies in."""

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
    # It may be requeued between the first two looks.
    found: Job | DeadJob | None = live.first() or dead.first() or live.first()
    return found


def is_task(db: Database, job_id: UUID) -> bool:
    """Tell whether a job was enqueued through django.tasks, by what its row says."""
    return TASK_META in read_meta(db, job_id)


def read_meta(db: Database, job_id: UUID) -> dict[str, Any]:
    """Return what was enqueued as the `meta` of a live job."""
    meta = Job.objects.using(db.alias).filter(pk=job_id).values_list("meta", flat=True)
    return meta.first() or {}
