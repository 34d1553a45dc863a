"""What the database says a worker owns, to be compared with what it holds.

Called by the claim loop between claims, at every beat and after each reconnect. Rows
that are owned but not held come from a claim whose reply was lost.
"""

from __future__ import annotations

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
        cancel_requested_at IS NOT NULL
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
    return [
        OwnedJob(
            job.pk,
            job.lease_token,
            job.attempts,
            job.job_type,
            job.queue,
            job.cancel_requested_at is not None,
        )
        for job in owned.order_by("pk")[:LIMIT]
    ]
