"""Finish with the ORM, in one transaction: quick successes many at a time, every other
end one job after the other.

Called by lifecycle/finish.py on databases other than PostgreSQL. It must end every
history as the PostgreSQL statements do; tests run both versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ...database_errors import is_database_trouble
from ...models import Attempt, DeadJob, Job
from ...options import Options
from ...outcomes import Died, Succeeded
from ...states import DEAD, JobStatus
from ...storage.database import Database
from ...storage.endings import (
    Ending,
    Unwritten,
    as_written,
    clears_suspicion,
    is_refused_value,
    plan_move,
    split_endings,
    with_constant_texts,
)
from ...storage.ownership import find_owned
from .finish_died import write_died
from .finish_moved import is_to_cancel, plan_columns
from .finish_succeeded import find_start, write_succeeded

if TYPE_CHECKING:
    from ..finish import FinishReport

# Successes in one statement: each has up to five parameters, and some SQLite builds
# take no more than 999.
STATEMENT_JOBS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """What is the same for all endings of one call."""

    db: Database
    report: FinishReport
    worker_id: UUID
    options: Options
    now: datetime


def finish_attempts(
    db: Database,
    endings: Sequence[Ending],
    report: FinishReport,
    *,
    worker_id: UUID,
    options: Options,
    now: datetime | None = None,
) -> None:
    """Write the ends of attempts in one transaction; fill the report."""
    with db.atomic():
        # Read inside: the wait for SQLite's lock must not make an attempt older.
        now = db.read_clock(now)
        batch = _Batch(
            db=db, report=report, worker_id=worker_id, options=options, now=now
        )
        left = [ending for ending in endings if not ending.is_quick]
        quick = [ending for ending in endings if ending.is_quick]
        for part in split_endings(quick, most=STATEMENT_JOBS):
            done, others = write_succeeded(
                db, part, worker_id=worker_id, options=options, now=now
            )
            report.done += done
            left += others
        for ending in left:
            _finish_or_report(batch, ending)


def _finish_or_report(batch: _Batch, ending: Ending) -> None:
    """Write one ending, with constant texts if its own are refused."""
    error = _try_to_finish(batch, ending)
    if error is not None and is_refused_value(error):
        error = _try_to_finish(batch, with_constant_texts(ending))
    if error is not None:
        batch.report.unwritten.append(Unwritten([ending], error))


def _try_to_finish(batch: _Batch, ending: Ending) -> Exception | None:
    """Write one ending, or return why it is refused.

    Raises database trouble, which concerns all endings.
    """
    try:
        with batch.db.atomic():
            _finish(batch, ending)
    except Exception as error:
        if is_database_trouble(error):
            raise
        return error
    return None


def _finish(batch: _Batch, ending: Ending) -> None:
    db, report = batch.db, batch.report
    owned = find_owned(db, ending.claim, worker_id=batch.worker_id)
    job = db.lock_rows(owned).first()
    if job is None:
        _sort_missing(batch, ending)
        return
    started_at = find_start(ending, batch.now)
    move = plan_move(ending.outcome)
    written = {
        "finished_by": batch.worker_id,
        "started_at": started_at,
        "lease_token": job.lease_token + int(ending.is_taken),
        "lost": 0 if move.is_progress else job.lost + move.loss,
        **_plan_suspicion(job, ending),
    }
    dead_id: UUID | None = None
    if isinstance(ending.outcome, Died) and not is_to_cancel(job, ending):
        dead_id = write_died(db, job, ending.outcome, written, now=batch.now)
        status = DEAD
    else:
        columns = plan_columns(job, ending, options=batch.options, now=batch.now)
        owned.update(**columns, **written)
        status = columns["status"]
        if status == JobStatus.PENDING:
            report.add_pending(job.queue, columns["rank"])
    if not isinstance(ending.outcome, Succeeded) or ending.claim.lease_token > 1:
        _note_attempt(batch, ending, started_at, job_id=dead_id or job.pk)
    report.done.append(as_written(ending, status, dead_id=dead_id))


def _plan_suspicion(job: Job, ending: Ending) -> dict[str, Any]:
    if clears_suspicion(ending.label):
        return {"crashes": 0, "isolate": False}
    crash = plan_move(ending.outcome).crash
    return {"crashes": job.crashes + crash, "isolate": job.isolate or crash == 1}


def _note_attempt(
    batch: _Batch, ending: Ending, started_at: datetime | None, *, job_id: UUID
) -> None:
    move = plan_move(ending.outcome)
    attempt = Attempt(
        job_id=job_id,
        lease_token=ending.claim.lease_token,
        number=ending.claim.attempt,
        worker_id=batch.worker_id,
        started_at=started_at,
        finished_at=batch.now,
        outcome=move.label,
        exception_class=move.failure.exception_class,
        message=move.failure.message,
        traceback=move.failure.traceback,
    )
    Attempt.objects.using(batch.db.alias).bulk_create([attempt], ignore_conflicts=True)


def _sort_missing(batch: _Batch, ending: Ending) -> None:
    """Find out why the row is not ours: locked, ended by us before, or lost."""
    claim, report, alias = ending.claim, batch.report, batch.db.alias
    job = Job.objects.using(alias).filter(pk=claim.id).first()
    record = job or DeadJob.objects.using(alias).filter(pk=claim.id).first()
    if record is None:
        (report.done if ending.has_deleted else report.lost).append(ending)
    elif job is None or job.status != JobStatus.RUNNING:
        noted = Attempt.objects.using(alias).filter(
            job_id=claim.id, lease_token=record.lease_token - 1
        )
        last_outcome = noted.values_list("outcome", flat=True).first()
        if ending.is_same_end(record.lease_token, last_outcome):
            status = DEAD if job is None else job.status
            report.done.append(as_written(ending, status))
        else:
            report.lost.append(ending)
    else:
        owner = (job.lease_token, job.worker_id)
        is_busy = owner == (claim.lease_token, batch.worker_id)
        (report.busy if is_busy else report.lost).append(ending)
