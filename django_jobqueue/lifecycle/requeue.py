"""Requeue: DeadJob → pending, by a person or code, deliberately.

Locks the dead rows, inserts live ones ON CONFLICT DO NOTHING, and deletes exactly the
dead rows that were inserted: the other order would lose a job whose key is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ..joboptions import JobOptions, read_job_options
from ..models import DeadJob, Job
from ..models.record import JobRecord
from ..options import Options, get_options
from ..payloads import dump_payload
from ..registry import find_handler
from ..states import JobStatus
from ..storage.commit_signals import report_requeued
from ..storage.database import Database, make_rank
from ..storage.notify import notify_due_on_commit, notify_on_commit

BATCH_JOBS = 500
# Not `isolate`: a job that killed its process is a suspect until it ends otherwise.
_RESET = {"attempts": 0, "crashes": 0, "lost": 0, "given_back": 0}
# An expiry that has passed would cancel the job at its next claim.
_CLEARED = {
    "claimed_at",
    "expires_at",
    "finished_by",
    "progress",
    "started_at",
    "unknown_since",
}


@dataclass(frozen=True, slots=True)
class RequeueCounts:
    """How many jobs were requeued, and how many stay dead because a live job has their
    unique key or id."""

    requeued: int = 0
    key_in_use: int = 0

    def __add__(self, other: RequeueCounts) -> RequeueCounts:
        return RequeueCounts(
            self.requeued + other.requeued, self.key_in_use + other.key_in_use
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """What the caller changes in the requeued jobs."""

    reset_attempts: bool
    payload: dict[str, Any] | None
    when: JobOptions


def requeue_jobs(
    dead_jobs: Any,
    *,
    reset_attempts: bool = True,
    payload: dict[str, Any] | None = None,
    run_at: datetime | None = None,
    delay: timedelta | float | None = None,
    db: Database | None = None,
    now: datetime | None = None,
) -> RequeueCounts:
    """Requeue a queryset of DeadJob in batches of 500, each in its own transaction."""
    options = get_options()
    db = db or Database(alias=options.database)
    when = read_job_options({"run_at": run_at, "delay": delay})
    changes = _Changes(reset_attempts=reset_attempts, payload=payload, when=when)
    if payload is not None:
        _check_payload(dead_jobs, payload, options)
    ids = list(dead_jobs.values_list("pk", flat=True))
    counts = RequeueCounts()
    for start in range(0, len(ids), BATCH_JOBS):
        batch = ids[start : start + BATCH_JOBS]
        counts += _requeue_batch(db, batch, changes, options, db.read_clock(now))
    return counts


def requeue_job(dead_job: DeadJob, **options: Any) -> Job | None:
    """Requeue one dead job; None if it is gone or its key is in use."""
    alias = get_options().database
    rows = DeadJob.objects.using(alias).filter(pk=dead_job.pk)
    if not requeue_jobs(rows, **options).requeued:
        return None
    job: Job | None = Job.objects.using(alias).filter(pk=dead_job.pk).first()
    return job


def _check_payload(dead_jobs: Any, payload: dict[str, Any], options: Options) -> None:
    dump_payload(payload, limit=options.max_payload_bytes)
    for job_type in dead_jobs.order_by().values_list("job_type", flat=True).distinct():
        handler = find_handler(job_type)
        if handler is not None:
            handler.check_arguments(payload)


def _requeue_batch(
    db: Database, ids: Sequence[Any], changes: _Changes, options: Options, now: datetime
) -> RequeueCounts:
    rows = DeadJob.objects.using(db.alias)
    with db.atomic():
        # Skips locked rows: another requeue has them.
        locked = list(db.lock_rows(rows.filter(pk__in=ids).order_by("pk")))
        jobs = [_revive(dead, changes, options, now) for dead in locked]
        inserted = _insert_jobs(db, jobs)
        rows.filter(pk__in=inserted).delete()
        alive = [job for job in jobs if job.pk in inserted]
        _notify(db, alive, now)
        report_requeued(db.alias, alive)
    return RequeueCounts(len(inserted), len(jobs) - len(inserted))


def _insert_jobs(db: Database, jobs: Sequence[Job]) -> set[UUID]:
    """Insert the jobs whose key and id are free; return the ids of exactly those.

    A live job may have the id already (a row copied by hand): then both rows stay. One
    that is inserted between the read and the INSERT has another token.
    """
    live = Job.objects.using(db.alias)
    rows = live.filter(pk__in=[job.pk for job in jobs])
    taken = set(rows.values_list("pk", flat=True))
    new = [job for job in jobs if job.pk not in taken]
    live.bulk_create(new, ignore_conflicts=True)
    wanted = {(job.pk, job.lease_token, job.rank) for job in new}
    found = set(rows.values_list("pk", "lease_token", "rank"))
    return {id for id, _, _ in wanted & found}


def _notify(db: Database, jobs: Sequence[Job], now: datetime) -> None:
    for job in jobs:
        if job.status == JobStatus.PENDING:
            notify_on_commit(db.alias, job.queue, job.rank)
        else:
            notify_due_on_commit(db.alias, (job.run_at - now).total_seconds())


def _revive(dead: DeadJob, changes: _Changes, options: Options, now: datetime) -> Job:
    values = {
        column.attname: getattr(dead, column.attname)
        for column in JobRecord._meta.fields
        if column.attname not in _CLEARED
    }
    if changes.reset_attempts:
        values |= _RESET
    else:
        values |= {**_RESET, "attempts": dead.attempts}
        values["max_attempts"] = dead.attempts + 1
    if changes.payload is not None:
        values["payload"] = changes.payload
    when = changes.when
    run_at = when.run_at or now + (when.delay or timedelta())
    values["lease_token"] = dead.lease_token + 1
    values["run_at"] = run_at
    return Job(
        **values,
        status=JobStatus.SCHEDULED if run_at > now else JobStatus.PENDING,
        rank=make_rank(run_at, now, priority=dead.priority, aging=options.aging),
    )
