"""Rescue: running → pending, scheduled, cancelled or dead, when the owner is gone.

Called by any worker that has been beating for a whole TTL. It starts from silent
heartbeats and locks each one before it takes jobs: a worker that beats again in the
meantime keeps them. The ends go through finish, like every other end, and raise the
lease token: later writes of the old owner are refused.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import assert_never
from uuid import UUID

from django.db import connections

from ..options import Options
from ..outcomes import (
    Cancelled,
    Crashed,
    Died,
    GivenBack,
    Lost,
    Retried,
    Succeeded,
    judge_loss,
)
from ..registry import find_max_attempts
from ..states import DEAD, JobStatus
from ..storage.database import Database
from ..storage.endings import Ending, Unwritten
from ..storage.ownership import OwnedJob, make_claim, read_owned_jobs
from .finish import FinishReport, finish_attempts
from .portable import rescue as portable

# Jobs that one call takes at most.
MAX_RESCUED_JOBS = 500
# How long the row of a dead worker stays visible.
KEEP_SILENT = timedelta(hours=1)
# The oldest start that is written for a lost attempt.
LONGEST_AGE = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Rescued:
    """One job taken from a worker that is gone."""

    id: UUID
    job_type: str
    queue: str
    # The worker that owned it.
    worker_id: UUID
    attempt: int
    lost: int
    # What became of it: a JobStatus, or DEAD.
    status: str
    error: str
    # See Ending.
    new_dead_id: UUID | None = None

    @property
    def is_dead(self) -> bool:
        return self.status == DEAD

    @property
    def is_cancelled(self) -> bool:
        """Whether a cancel was requested before it was lost."""
        return self.status == JobStatus.CANCELLED


@dataclass(slots=True)
class RescueReport:
    """What became of the jobs of silent workers."""

    jobs: list[Rescued] = field(default_factory=list)
    # {queue: lowest rank} of the jobs that became pending, to notify workers.
    pending: dict[str, int] = field(default_factory=dict)
    # Refused by the database; the rows stay with their dead owner.
    unwritten: list[Unwritten] = field(default_factory=list)
    # Silent workers whose heartbeat rows another session holds.
    held: list[UUID] = field(default_factory=list)


def rescue_jobs(
    db: Database, *, options: Options, now: datetime | None = None
) -> RescueReport:
    """Take up to MAX_RESCUED_JOBS from workers that are silent or have no row."""
    report = RescueReport()
    for worker_id in find_silent_workers(db, ttl=options.heartbeat_ttl, now=now):
        if len(report.jobs) < MAX_RESCUED_JOBS:
            rescue_from(db, worker_id, report, options=options, now=now)
    return report


def rescue_from(
    db: Database,
    worker_id: UUID,
    report: RescueReport,
    *,
    options: Options,
    now: datetime | None = None,
) -> None:
    """Take the jobs of one worker, in a transaction that holds its heartbeat row."""
    with db.transaction():
        if not _lock_if_gone(db, worker_id, ttl=options.heartbeat_ttl, now=now):
            report.held.append(worker_id)
            return
        limit = MAX_RESCUED_JOBS - len(report.jobs)
        owned = {job.id: job for job in read_owned_jobs(db, worker_id, limit=limit)}
        clock = db.read_clock(now)
        endings = [_make_ending(job, options, clock) for job in owned.values()]
        finished = finish_attempts(
            db, endings, worker_id=worker_id, options=options, now=now
        )
    _add_finished(db, report, finished, owned, worker_id)


def _make_ending(job: OwnedJob, options: Options, now: datetime) -> Ending:
    # Capped: a row written by hand may have been claimed in the year 1.
    age = min(max(timedelta(), now - job.claimed_at), LONGEST_AGE).total_seconds()
    return Ending(
        claim=make_claim(job),
        outcome=judge_loss(
            lost=job.lost,
            # Enqueue stores a limit of one with the job: a worker that does not know
            # the handler cannot start such a job twice.
            max_attempts=find_max_attempts(job.job_type, job.max_attempts, options),
            max_lost=options.max_lost,
            job_type=job.job_type,
        ),
        # The handler may have been called at any time after the claim.
        started=time.monotonic() - age,
        is_taken=True,
    )


def _add_finished(
    db: Database,
    report: RescueReport,
    finished: FinishReport,
    owned: dict[UUID, OwnedJob],
    worker_id: UUID,
) -> None:
    """Add the jobs of one worker to the report."""
    for ending in finished.done:
        job = owned[ending.claim.id]
        status, error = _describe_end(ending)
        report.jobs.append(
            Rescued(
                id=job.id,
                job_type=job.job_type,
                queue=job.queue,
                worker_id=worker_id,
                attempt=job.attempt,
                lost=job.lost + 1,
                status=status,
                error=error,
                new_dead_id=ending.new_dead_id,
            )
        )
    report.unwritten += finished.unwritten
    has_row_locks = connections[db.alias].features.has_select_for_update
    if finished.busy and not has_row_locks:
        # No other session can hold a row: it was not found as it was read.
        unread = ValueError("a column of the job is not written as it is read")
        report.unwritten.append(Unwritten(finished.busy, unread))
    for queue, rank in finished.pending.items():
        report.pending[queue] = min(rank, report.pending.get(queue, rank))


def _describe_end(ending: Ending) -> tuple[str, str]:
    match ending.outcome:
        case Lost(delay=delay, failure=failure):
            status = JobStatus.SCHEDULED if delay else JobStatus.PENDING
            return status, failure.short
        case Died(failure=failure):
            return DEAD, failure.short
        case Cancelled(reason=reason):
            return JobStatus.CANCELLED, reason
        case Succeeded() | Retried() | GivenBack() | Crashed():
            raise AssertionError(f"A loss does not end as {ending.outcome!r}.")
        case _:
            assert_never(ending.outcome)


# One statement for both ways to be gone: silent for a TTL, or without a row.
LOCK_IF_GONE = """
    WITH silent AS MATERIALIZED (
        SELECT worker.id
        FROM jobqueue_workerheartbeat AS worker
        WHERE
            worker.id = %(worker_id)s::uuid
            AND worker.last_seen_at < (
                SELECT coalesce(%(now)s::timestamptz, clock_timestamp())
            ) - %(ttl)s::interval
        FOR NO KEY UPDATE SKIP LOCKED
    )
    SELECT id
    FROM silent
    UNION ALL
    SELECT %(worker_id)s::uuid
    WHERE NOT EXISTS (
        SELECT 1
        FROM jobqueue_workerheartbeat AS worker
        WHERE worker.id = %(worker_id)s::uuid
    )
"""


def _lock_if_gone(
    db: Database, worker_id: UUID, *, ttl: timedelta, now: datetime | None
) -> bool:
    """Lock the heartbeat row; False if the worker beats again or is being rescued."""
    if not db.is_postgres:
        return portable.lock_if_gone(db, worker_id, ttl=ttl, now=now)
    parameters = {"worker_id": worker_id, "ttl": ttl, "now": now}
    return bool(db.execute(LOCK_IF_GONE, parameters, is_rare=True))


FIND_SILENT_WORKERS = """
    SELECT worker.id
    FROM jobqueue_workerheartbeat AS worker
    WHERE
        worker.last_seen_at < (
            SELECT coalesce(%(now)s::timestamptz, clock_timestamp())
        ) - %(ttl)s::interval
    UNION ALL
    SELECT orphan.worker_id
    FROM (
        SELECT DISTINCT job.worker_id
        FROM jobqueue_job AS job
        WHERE job.worker_id IS NOT NULL
    ) AS orphan
    WHERE NOT EXISTS (
        SELECT 1
        FROM jobqueue_workerheartbeat AS worker
        WHERE worker.id = orphan.worker_id
    )
"""


def find_silent_workers(
    db: Database, *, ttl: timedelta, now: datetime | None = None
) -> list[UUID]:
    """Return the workers that are silent for longer than the TTL, or own jobs without
    a heartbeat row."""
    if not db.is_postgres:
        return portable.find_silent_workers(db, ttl=ttl, now=now)
    parameters = {"ttl": ttl, "now": now}
    rows = db.execute(FIND_SILENT_WORKERS, parameters, is_rare=True)
    return [id for (id,) in rows]


FORGET_SILENT_WORKERS = """
    DELETE FROM jobqueue_workerheartbeat AS worker
    WHERE
        worker.last_seen_at < (
            SELECT coalesce(%(now)s::timestamptz, clock_timestamp())
        ) - %(keep)s::interval
        AND NOT EXISTS (
            SELECT 1
            FROM jobqueue_job AS job
            WHERE job.worker_id = worker.id
        )
    RETURNING worker.id
"""


def forget_silent_workers(db: Database, *, now: datetime | None = None) -> int:
    """Delete the rows of workers that are silent for an hour and own no job."""
    if not db.is_postgres:
        return portable.forget_silent_workers(db, keep=KEEP_SILENT, now=now)
    parameters = {"keep": KEEP_SILENT, "now": now}
    return len(db.execute(FORGET_SILENT_WORKERS, parameters, is_rare=True))
