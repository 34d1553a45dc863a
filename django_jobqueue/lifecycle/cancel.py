"""Cancel: scheduled, pending, blocked → cancelled; asks a running attempt to stop.

Called by anyone with the permission. The state is tested in the UPDATE itself, so that
a claim at the same moment either happens before, and is asked to stop, or not at all.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Coalesce

from ..models import Job
from ..options import get_options
from ..states import WAITING, CancelResult, JobStatus
from .database import Database
from .notify import notify_cancel


def cancel_job(
    job: Job,
    *,
    reason: str = "",
    db: Database | None = None,
    now: datetime | None = None,
) -> CancelResult:
    """Cancel one job and refresh the instance (unless its row is gone)."""
    options = get_options()
    db = db or Database(alias=options.database)
    now = db.read_clock(now)
    rows = Job.objects.using(db.alias).filter(pk=job.pk)
    age = options.retention["cancelled"].age
    result = CancelResult.ENDED
    if rows.filter(status__in=WAITING).update(
        status=JobStatus.CANCELLED,
        lease_token=F("lease_token") + 1,
        unique_key=None,
        error=reason,
        finished_at=now,
        prune_at=None if age is None else now + age,
    ):
        result = CancelResult.CANCELLED
    elif rows.filter(status=JobStatus.RUNNING).update(
        cancel_requested_at=Coalesce(F("cancel_requested_at"), now)
    ):
        result = CancelResult.REQUESTED
    fresh = rows.first()
    if fresh is not None:
        job.__dict__.update(
            {name: value for name, value in fresh.__dict__.items() if name != "_state"}
        )
    if result is CancelResult.REQUESTED and job.worker_id is not None:
        notice = partial(notify_cancel, db, job.pk, job.worker_id)
        transaction.on_commit(notice, using=db.alias, robust=True)
    return result
