"""Prune: succeeded, cancelled → gone, with their attempts, once `prune_at` has come.

Called by the maintenance of every worker and by `jobqueue prune`. Dead jobs are never
pruned.
"""

from __future__ import annotations

from datetime import datetime

from ..models import Attempt, Job
from .database import Database

BATCH = 500


def prune_jobs(db: Database, *, limit: int = BATCH, now: datetime | None = None) -> int:
    """Delete up to `limit` ended jobs whose time has come; return how many."""
    due = Job.objects.using(db.alias).filter(prune_at__lte=db.read_clock(now))
    if not due.exists():
        return 0
    with db.atomic():
        rows = due.order_by("prune_at").select_for_update(
            skip_locked=_can_skip_locked(db)
        )
        ids = list(rows.values_list("pk", flat=True)[:limit])
        Attempt.objects.using(db.alias).filter(job_id__in=ids).delete()
        Job.objects.using(db.alias).filter(pk__in=ids).delete()
    return len(ids)


def _can_skip_locked(db: Database) -> bool:
    from django.db import connections

    return connections[db.alias].features.has_select_for_update_skip_locked
