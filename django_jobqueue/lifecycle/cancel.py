"""Cancel: scheduled, pending, blocked → cancelled; asks a running attempt to stop.

Called by anyone with the permission. The UPDATE itself tests the state: a claim at the
same moment either happens before, and its attempt is asked to stop, or not at all. A
request is kept: finish and rescue cancel a job that has one, unless its handler
returns: then the job has succeeded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connections, transaction
from django.db.models import F
from django.db.models.functions import Coalesce

from ..models import Job
from ..options import Options, get_options
from ..states import LIVE, WAITING, CancelResult, JobStatus
from ..storage.commit_signals import report_cancelled
from ..storage.database import Database
from ..storage.notify import notify_cancel


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
    result = CancelResult.ENDED
    # In one transaction: a job that we cancel cannot be pruned before it is read.
    with db.atomic():
        # Locked first: between the two updates it could stop running and wait again.
        # Then neither update would find it.
        _wait_for_row(db, job.pk)
        if rows.filter(status__in=WAITING).update(**_plan_end(options, now, reason)):
            result = CancelResult.CANCELLED
        elif rows.filter(status=JobStatus.RUNNING).update(**_plan_request(now)):
            result = CancelResult.REQUESTED
        fresh = rows.first()
    if fresh is not None:
        job.__dict__.update(
            {name: value for name, value in fresh.__dict__.items() if name != "_state"}
        )
    if result is CancelResult.REQUESTED and job.worker_id is not None:
        _notify(db, job.pk, job.worker_id)
    if result is CancelResult.CANCELLED:
        _report(db, [job], reason=reason)
    return result


def cancel_jobs(
    ids: Sequence[UUID],
    *,
    reason: str = "",
    db: Database | None = None,
    now: datetime | None = None,
) -> Counter[CancelResult]:
    """Cancel one batch of jobs in one transaction; count what became of them.

    Those whose rows are locked are cancelled one by one, after the others.
    """
    options = get_options()
    db = db or Database(alias=options.database)
    now = db.read_clock(now)
    rows = Job.objects.using(db.alias)
    with db.atomic():
        live = rows.filter(pk__in=ids, status__in=LIVE).order_by("pk")
        locked = list(
            db.lock_rows(live).only("job_type", "queue", "attempts", "worker_id")
        )
        waiting = [job for job in locked if job.worker_id is None]
        running = [job for job in locked if job.worker_id is not None]
        rows.filter(pk__in=[job.pk for job in waiting], status__in=WAITING).update(
            **_plan_end(options, now, reason)
        )
        rows.filter(
            pk__in=[job.pk for job in running], status=JobStatus.RUNNING
        ).update(**_plan_request(now))
        for job in running:
            _notify(db, job.pk, job.worker_id)
        _report(db, waiting, reason=reason)
    results = Counter(
        {CancelResult.CANCELLED: len(waiting), CancelResult.REQUESTED: len(running)}
    )
    for id in set(ids) - {job.pk for job in locked}:
        results[cancel_job(Job(pk=id), reason=reason, db=db, now=now)] += 1
    return results


def _wait_for_row(db: Database, id: UUID) -> None:
    """Wait for the row and lock it until the end of the transaction."""
    features = connections[db.alias].features
    rows = Job.objects.using(db.alias).select_for_update(
        no_key=features.has_select_for_no_key_update
    )
    rows.filter(pk=id).values_list("pk").first()


def _plan_end(options: Options, now: datetime, reason: str) -> dict[str, Any]:
    delay = options.retention["cancelled"].delay
    return {
        "status": JobStatus.CANCELLED,
        "lease_token": F("lease_token") + 1,
        "unique_key": None,
        "error": reason,
        "finished_at": now,
        "prune_at": None if delay is None else now + delay,
    }


def _plan_request(now: datetime) -> dict[str, Any]:
    return {"cancel_requested_at": Coalesce(F("cancel_requested_at"), now)}


def _report(db: Database, jobs: Iterable[Job], *, reason: str) -> None:
    ended = ((job.pk, job.job_type, job.queue, job.attempts) for job in jobs)
    report_cancelled(db.alias, ended, reason=reason)


def _notify(db: Database, job_id: UUID, worker_id: UUID) -> None:
    transaction.on_commit(
        lambda: notify_cancel(db, job_id, worker_id), using=db.alias, robust=True
    )
