"""What the database says a worker owns, to be compared with what it holds.

Called by the claim loop between claims, at every beat and after each reconnect. Rows
that are owned but not held come from a claim whose reply was lost. The supervisor reads
what a process owned that has died.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from ..models import Job
from ..states import JobStatus
from .claim import Claim
from .database import Database

# An idle worker owns nothing, and one under load a few hundred.
LIMIT = 10_000


class OwnedJob(NamedTuple):
    id: UUID
    lease_token: int
    attempt: int
    job_type: str
    queue: str
    is_cancel_requested: bool
    crashes: int
    given_back: int
    # None here and in backoff, a JSON text: as the handler says.
    max_attempts: int | None
    backoff: str | None
    claimed_at: datetime


def make_claim(job: OwnedJob) -> Claim:
    """Make what finish needs to end an attempt that we have only read of."""
    return Claim(
        id=job.id,
        lease_token=job.lease_token,
        rank=0,
        job_type=job.job_type,
        queue=job.queue,
        priority=0,
        payload="{}",
        args="[]",
        backoff=job.backoff,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        timeout=None,
        given_back=job.given_back,
        run_at=job.claimed_at,
        claimed_at=job.claimed_at,
        expires_at=None,
        unknown_since=None,
    )


def is_owned(db: Database, claim: Claim, *, worker_id: UUID) -> bool:
    """Tell whether a claim still owns its job. Takes no lock: true at this moment."""
    owned = Job.objects.using(db.alias).filter(
        pk=claim.id,
        lease_token=claim.lease_token,
        status=JobStatus.RUNNING,
        worker_id=worker_id,
    )
    return bool(owned.exists())


READ_OWNED_JOBS = """
    SELECT
        id,
        lease_token,
        attempts,
        job_type,
        queue,
        cancel_requested_at IS NOT NULL,
        crashes,
        given_back,
        max_attempts,
        backoff,
        claimed_at
    FROM jobqueue_job
    WHERE
        worker_id = %(worker_id)s::uuid
        AND status = 'running'
    ORDER BY id
    LIMIT %(limit)s::integer
"""


def read_owned_jobs(db: Database, worker_id: UUID) -> list[OwnedJob]:
    """Return what the worker owns in the database."""
    if db.is_postgres:
        parameters = {"worker_id": worker_id, "limit": LIMIT}
        return [OwnedJob(*row) for row in db.execute(READ_OWNED_JOBS, parameters)]
    owned = Job.objects.using(db.alias).filter(
        worker_id=worker_id, status=JobStatus.RUNNING
    )
    return [_describe(job) for job in owned.order_by("pk")[:LIMIT]]


def _describe(job: Job) -> OwnedJob:
    assert job.claimed_at is not None
    return OwnedJob(
        id=job.pk,
        lease_token=job.lease_token,
        attempt=job.attempts,
        job_type=job.job_type,
        queue=job.queue,
        is_cancel_requested=job.cancel_requested_at is not None,
        crashes=job.crashes,
        given_back=job.given_back,
        max_attempts=job.max_attempts,
        backoff=None if job.backoff is None else json.dumps(job.backoff),
        claimed_at=job.claimed_at,
    )
