"""The portable version of rescue: the ORM inside atomic(), one job after the other.

SQLite and other databases run it; on PostgreSQL the tests do, and it must end every
history as the hand-written statements do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import F

from ..backoff import exponential
from ..models import Attempt, Job, WorkerHeartbeat
from ..options import Options
from ..states import AttemptOutcome, DeadReason, JobStatus
from .bury import bury_portable
from .database import Database, make_rank
from .rescued import LIMIT, MESSAGE, Rescued


def rescue_portable(
    db: Database,
    silent: list[UUID],
    options: Options,
    run_once: Sequence[str],
    now: datetime | None,
) -> list[Rescued]:
    now = db.read_clock(now)
    rescued = []
    with db.atomic():
        gone = _lock_gone(db, silent, now - options.heartbeat_ttl)
        owned = Job.objects.using(db.alias).filter(
            worker_id__in=gone, status=JobStatus.RUNNING
        )
        for job in db.lock_rows(owned.order_by("id"))[:LIMIT]:
            _note_loss(db, job, now)
            if _is_used_up(job, options, run_once):
                rescued.append(_bury_lost(db, job, now))
            else:
                rescued.append(_take_back(db, job, options, now))
    return rescued


def _lock_gone(db: Database, silent: list[UUID], limit: datetime) -> Iterable[UUID]:
    workers = WorkerHeartbeat.objects.using(db.alias)
    known = set(workers.filter(pk__in=silent).values_list("pk", flat=True))
    still = workers.filter(pk__in=silent, last_seen_at__lt=limit).order_by("pk")
    locked = {worker.pk for worker in db.lock_rows(still)}
    return locked | (set(silent) - known)


def _is_used_up(job: Job, options: Options, run_once: Sequence[str]) -> bool:
    if job.lost + 1 >= options.max_lost:
        return True
    if job.max_attempts is not None:
        return job.max_attempts == 1
    return job.job_type in run_once


def _take_back(db: Database, job: Job, options: Options, now: datetime) -> Rescued:
    is_first = job.lost == 0
    delay = timedelta() if is_first else exponential(2, 300).delay(job.lost, jitter=1)
    rank = make_rank(now, now, priority=job.priority, aging=options.aging)
    Job.objects.using(db.alias).filter(pk=job.pk).update(
        status=JobStatus.PENDING if is_first else JobStatus.SCHEDULED,
        lease_token=F("lease_token") + 1,
        attempts=F("attempts") - 1,
        lost=F("lost") + 1,
        worker_id=None,
        error=f"WorkerLost: {MESSAGE}",
        run_at=now + delay,
        rank=rank,
    )
    return _describe(job, rank=rank if is_first else None, is_dead=False)


def _bury_lost(db: Database, job: Job, now: datetime) -> Rescued:
    bury_portable(
        db,
        job,
        now=now,
        lost=job.lost + 1,
        lease_token=job.lease_token + 1,
        error=f"WorkerLost: {MESSAGE}",
        reason=DeadReason.LOST,
    )
    return _describe(job, rank=None, is_dead=True)


def _note_loss(db: Database, job: Job, now: datetime) -> None:
    Attempt.objects.using(db.alias).bulk_create(
        [
            Attempt(
                job_id=job.pk,
                lease_token=job.lease_token,
                number=job.attempts,
                worker_id=job.worker_id,
                started_at=job.claimed_at,
                finished_at=now,
                outcome=AttemptOutcome.LOST,
                exception_class="WorkerLost",
                message=MESSAGE,
            )
        ],
        ignore_conflicts=True,
    )


def _describe(job: Job, *, rank: int | None, is_dead: bool) -> Rescued:
    assert job.worker_id is not None
    return Rescued(
        id=job.pk,
        job_type=job.job_type,
        queue=job.queue,
        worker_id=job.worker_id,
        attempt=job.attempts,
        lost=job.lost + 1,
        rank=rank,
        is_dead=is_dead,
    )
