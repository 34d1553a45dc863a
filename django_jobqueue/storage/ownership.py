"""Ownership: the jobs that a worker owns according to the database.

The claim loop compares them with its jobs in flight between claims, at every beat and
after each reconnect: a row that is not in flight comes from a claim whose reply was
lost. The supervisor reads what a dead process owned, finish why a write was refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import QuerySet

from ..models import Job
from ..states import DEAD, JobStatus
from .claims import Claim
from .database import Database

# Rows of one page. A worker owns a few hundred, or thousands whose ends are unwritten.
PAGE_JOBS = 10_000


class OwnedJob(NamedTuple):
    id: UUID
    lease_token: int
    attempt: int
    job_type: str
    queue: str
    is_cancel_requested: bool
    crashes: int
    lost: int
    given_back: int
    # None here and in backoff (a JSON text): the handler decides.
    max_attempts: int | None
    backoff: str | None
    claimed_at: datetime


def make_claim(job: OwnedJob) -> Claim:
    """Return a claim with what finish needs to end an attempt of another process."""
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
    return bool(find_owned(db, claim, worker_id=worker_id).exists())


def find_owned(db: Database, claim: Claim, *, worker_id: UUID) -> QuerySet[Job]:
    """Return the row of a claim's job if the claim still owns it: the fence in ORM."""
    rows: QuerySet[Job] = Job.objects.using(db.alias).filter(
        pk=claim.id,
        lease_token=claim.lease_token,
        status=JobStatus.RUNNING,
        worker_id=worker_id,
    )
    return rows


READ_OWNED_JOBS = """
    SELECT
        id,
        lease_token,
        attempts,
        job_type,
        queue,
        cancel_requested_at IS NOT NULL,
        crashes,
        lost,
        given_back,
        max_attempts,
        backoff,
        claimed_at
    FROM jobqueue_job
    WHERE
        worker_id = %(worker_id)s::uuid
        AND status = 'running'
        AND (%(after)s::uuid IS NULL OR id > %(after)s::uuid)
    ORDER BY id
    LIMIT %(limit)s::integer
"""


def read_owned_jobs(
    db: Database, worker_id: UUID, *, limit: int | None = None
) -> list[OwnedJob]:
    """Return what the worker owns in the database, in the order of ids.

    Read in pages, so what is claimed meanwhile by the same worker may be missing.
    """
    owned: list[OwnedJob] = []
    after: UUID | None = None
    while limit is None or len(owned) < limit:
        size = PAGE_JOBS if limit is None else min(PAGE_JOBS, limit - len(owned))
        page = _read_page(db, worker_id, after, size)
        owned += page
        if len(page) < size:
            break
        after = page[-1].id
    return owned


def _read_page(
    db: Database, worker_id: UUID, after: UUID | None, size: int
) -> list[OwnedJob]:
    if db.is_postgres:
        parameters = {"worker_id": worker_id, "after": after, "limit": size}
        return [OwnedJob(*row) for row in db.execute(READ_OWNED_JOBS, parameters)]
    owned = Job.objects.using(db.alias).filter(
        worker_id=worker_id, status=JobStatus.RUNNING
    )
    if after is not None:
        owned = owned.filter(pk__gt=after)
    return [_describe(job) for job in owned.order_by("pk")[:size]]


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
        lost=job.lost,
        given_back=job.given_back,
        max_attempts=job.max_attempts,
        backoff=None if job.backoff is None else json.dumps(job.backoff),
        claimed_at=job.claimed_at,
    )


class ClaimState(NamedTuple):
    """What the database says of a job that a finish could not write."""

    # A JobStatus, or DEAD.
    status: str
    token: int
    worker_id: UUID | None
    # The outcome noted under the token before this one.
    last_outcome: str | None
    is_cancel_requested: bool


# The attempt is the one before the present token: whoever took the job away noted it.
READ_CLAIM_STATES = """
    SELECT
        job.id,
        job.status,
        job.lease_token,
        job.worker_id,
        attempt.outcome,
        job.cancel_requested_at IS NOT NULL
    FROM jobqueue_job AS job
    LEFT JOIN jobqueue_attempt AS attempt
        ON attempt.job_id = job.id
        AND attempt.lease_token = job.lease_token - 1
    WHERE job.id = ANY(%(ids)s::uuid[])
    UNION ALL
    SELECT
        dead.id,
        'dead',
        dead.lease_token,
        NULL,
        attempt.outcome,
        false
    FROM jobqueue_deadjob AS dead
    LEFT JOIN jobqueue_attempt AS attempt
        ON attempt.job_id = dead.id
        AND attempt.lease_token = dead.lease_token - 1
    WHERE dead.id = ANY(%(ids)s::uuid[])
"""


def read_claim_states(db: Database, ids: Sequence[UUID]) -> dict[UUID, ClaimState]:
    """Return the state of each of these jobs, live or dead; PostgreSQL only.

    A dead job may share the id of a live one (a copied row): the live one counts.
    """
    found: dict[UUID, ClaimState] = {}
    for id, *row in db.execute(READ_CLAIM_STATES, {"ids": list(ids)}):
        state = ClaimState(*row)
        if state.status != DEAD or id not in found:
            found[id] = state
    return found
