"""Claim with the ORM, in one transaction: pending → running.

Called by lifecycle/claim.py on databases other than PostgreSQL, and for a claim row by
row on any database.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet

from ...models import Job
from ...states import JobStatus
from ...storage.claims import CLAIM_COLUMNS, Claim, Suspects
from ...storage.database import Database, leave_out

# Ids in one statement: some SQLite builds take no more than 999 parameters.
STATEMENT_JOBS = 500


def claim_jobs(
    db: Database,
    quotas: dict[str, int],
    *,
    worker_id: UUID,
    suspects: Suspects,
    passed: Sequence[UUID],
    now: datetime | None,
) -> list[Claim]:
    """Claim the most urgent jobs, up to its quota from each queue; in any order."""
    rows = find_pending(db, suspects, passed)
    # Without this read an idle worker would take SQLite's only write lock each time.
    if not rows.filter(queue__in=list(quotas)).exists():
        return []
    with db.atomic():
        claimed_at = db.read_clock(now)
        jobs: list[Any] = []
        for queue, quota in quotas.items():
            wanted = rows.filter(queue=queue).order_by("rank", "id")
            jobs += _read_jobs(db, wanted)[:quota]
        # Inside the transaction: an unreadable row must not leave the others claimed.
        claims = [_make_claim(job, claimed_at) for job in jobs]
        _take_jobs(db, jobs, worker_id=worker_id, claimed_at=claimed_at)
    return claims


def claim_job(
    db: Database, id: UUID, *, worker_id: UUID, now: datetime | None = None
) -> Claim | None:
    """Claim this one job; None if it is not pending.

    For the claim row by row, and for tests that run a given job.
    """
    with db.atomic():
        claimed_at = db.read_clock(now)
        jobs = list(_read_jobs(db, find_pending(db, Suspects.INCLUDED).filter(pk=id)))
        _take_jobs(db, jobs, worker_id=worker_id, claimed_at=claimed_at)
    return _make_claim(jobs[0], claimed_at) if jobs else None


def find_pending(
    db: Database, suspects: Suspects, passed: Sequence[UUID] = ()
) -> QuerySet[Job]:
    """Return the pending jobs that a claim may take."""
    rows = Job.objects.using(db.alias).filter(status=JobStatus.PENDING)
    if suspects is not Suspects.INCLUDED:
        rows = rows.filter(isolate=suspects is Suspects.ONLY)
    return leave_out(rows, passed)


def _read_jobs(db: Database, rows: QuerySet[Job]) -> QuerySet[Job, Any]:
    """Lock jobs and read the columns of a claim only."""
    columns = [name for name in CLAIM_COLUMNS if name != "claimed_at"]
    return db.lock_rows(rows).values_list(*columns, named=True)


def _take_jobs(
    db: Database, jobs: Sequence[Any], *, worker_id: UUID, claimed_at: datetime
) -> None:
    count = 0
    for start in range(0, len(jobs), STATEMENT_JOBS):
        ids = [job.id for job in jobs[start : start + STATEMENT_JOBS]]
        rows = Job.objects.using(db.alias).filter(pk__in=ids, status=JobStatus.PENDING)
        count += rows.update(
            status=JobStatus.RUNNING,
            lease_token=F("lease_token") + 1,
            attempts=F("attempts") + 1,
            worker_id=worker_id,
            claimed_at=claimed_at,
            started_at=None,
        )
    if count != len(jobs):
        # SQLite compares ids as text, and an id in capitals is read as the same UUID.
        raise ValueError("the id of a pending job is not written as it is read")


def _make_claim(job: Any, claimed_at: datetime) -> Claim:
    _check_types(job)
    values = {**job._asdict(), "claimed_at": claimed_at}
    values["lease_token"] += 1
    values["attempt"] = values.pop("attempts") + 1
    for name in ("payload", "args", "backoff"):
        values[name] = json.dumps(values[name])
    if job.backoff is None:
        values["backoff"] = None
    return Claim(**values)


def _check_types(job: Any) -> None:
    """Raise if SQLite stored a value that is not of the column's type."""
    numbers = (job.lease_token, job.rank, job.attempts, job.given_back)
    # Django reads a text that is no time as None.
    if not all(type(number) is int for number in numbers) or job.run_at is None:
        raise TypeError("a column of a pending job has a value of another type")
    if job.max_attempts is not None and type(job.max_attempts) is not int:
        raise TypeError("max_attempts of a pending job is not a number")
