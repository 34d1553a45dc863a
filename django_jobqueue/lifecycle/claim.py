"""Claim: pending → running. Hands out Claims, a worker's right to one attempt.

Called by the worker's claim loop when it has free slots. Each claim adds 1 to the lease
token, which every later write of the attempt must name. Must run in autocommit: the
claim has to be visible before the attempt begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import F, QuerySet

from ..models import Job
from ..states import JobStatus
from .database import Database


class Suspects(Enum):
    """Whether a claim takes jobs suspected of killing their process (`Job.isolate`)."""

    # A worker without a supervisor: nobody else would run them.
    TOO = "too"
    # A process that runs many jobs, which it must not take along.
    NOT = "not"
    # The process in which a suspect runs alone.
    ONLY = "only"


LOWEST = -(1 << 63)
HIGHEST = (1 << 63) - 1
NIL = UUID(int=0)


class Span(NamedTuple):
    """A part of a queue, in the order of claims: what comes after (low, after) and has
    a rank up to `high`."""

    queue: str
    low: int
    after: UUID
    high: int

    def covers(self, rank: int) -> bool:
        return self.low < rank <= self.high


def whole(queue: str) -> Span:
    """Return the span that covers all of a queue."""
    return Span(queue, LOWEST, NIL, HIGHEST)


class Claim(NamedTuple):
    """One claimed job, light: a full Job is only made where somebody asks for it.

    A tuple because thousands are made each second, and it is built straight from a row.
    """

    id: UUID
    lease_token: int
    rank: int
    job_type: str
    queue: str
    priority: int
    # JSON texts, decoded by the thread that runs the job.
    payload: str
    args: str
    backoff: str | None
    # The number of this attempt, from 1.
    attempt: int
    max_attempts: int | None
    timeout: timedelta | None
    given_back: int
    run_at: datetime
    claimed_at: datetime
    expires_at: datetime | None
    unknown_since: datetime | None

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= self.claimed_at


# IS NOT DISTINCT FROM, not =, where the rows are known by id: a plain comparison allows
# the partial index, and with statistics of an empty queue the planner walked all of it
# (11,680 pages for 50 jobs, 677 by the primary key).
CLAIM_JOBS = """
    WITH chosen AS MATERIALIZED (
        SELECT picked.id
        FROM unnest(%(queues)s::text[], %(limits)s::integer[]) AS wanted (queue, quota)
        CROSS JOIN LATERAL (
            SELECT candidate.id
            FROM unnest(
                %(span_queues)s::text[],
                %(lows)s::bigint[],
                %(afters)s::uuid[],
                %(highs)s::bigint[]
            ) AS span (queue, low, after, high)
            CROSS JOIN LATERAL (
                SELECT job.id
                FROM jobqueue_job AS job
                WHERE
                    job.status = 'pending'
                    AND job.queue = wanted.queue
                    AND (job.rank, job.id) > (span.low, span.after)
                    AND job.rank <= span.high
                    AND (NOT job.isolate OR %(with_suspects)s::boolean)
                ORDER BY job.rank, job.id
                LIMIT wanted.quota
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS candidate
            WHERE span.queue = wanted.queue
            LIMIT wanted.quota
        ) AS picked
    )
    UPDATE jobqueue_job AS job
    SET
        status = 'running',
        lease_token = job.lease_token + 1,
        attempts = job.attempts + 1,
        worker_id = %(worker_id)s::uuid,
        claimed_at = (SELECT coalesce(%(now)s::timestamptz, clock_timestamp())),
        started_at = NULL
    WHERE
        job.id = ANY(ARRAY(SELECT id FROM chosen))
        AND job.status IS NOT DISTINCT FROM 'pending'
    RETURNING
        job.id,
        job.lease_token,
        job.rank,
        job.job_type,
        job.queue,
        job.priority,
        job.payload,
        job.args,
        job.backoff,
        job.attempts,
        job.max_attempts,
        job.timeout,
        job.given_back,
        job.run_at,
        job.claimed_at,
        job.expires_at,
        job.unknown_since
"""

# The same, with a condition that stands in the index of suspects: as a parameter it
# would leave the planner with the index of all pending jobs, a million of them perhaps.
CLAIM_SUSPECTS = """
    WITH chosen AS MATERIALIZED (
        SELECT candidate.id
        FROM unnest(%(queues)s::text[], %(limits)s::integer[]) AS wanted (queue, quota)
        CROSS JOIN LATERAL (
            SELECT job.id
            FROM jobqueue_job AS job
            WHERE
                job.status = 'pending'
                AND job.isolate
                AND job.queue = wanted.queue
            ORDER BY job.rank, job.id
            LIMIT wanted.quota
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS candidate
    )
    UPDATE jobqueue_job AS job
    SET
        status = 'running',
        lease_token = job.lease_token + 1,
        attempts = job.attempts + 1,
        worker_id = %(worker_id)s::uuid,
        claimed_at = (SELECT coalesce(%(now)s::timestamptz, clock_timestamp())),
        started_at = NULL
    WHERE
        job.id = ANY(ARRAY(SELECT id FROM chosen))
        AND job.status IS NOT DISTINCT FROM 'pending'
    RETURNING
        job.id,
        job.lease_token,
        job.rank,
        job.job_type,
        job.queue,
        job.priority,
        job.payload,
        job.args,
        job.backoff,
        job.attempts,
        job.max_attempts,
        job.timeout,
        job.given_back,
        job.run_at,
        job.claimed_at,
        job.expires_at,
        job.unknown_since
"""


def claim_jobs(
    db: Database,
    quotas: dict[str, int],
    *,
    worker_id: UUID,
    suspects: Suspects = Suspects.TOO,
    spans: Sequence[Span] | None = None,
    now: datetime | None = None,
) -> list[Claim]:
    """Claim the most urgent jobs, up to its quota from each queue.

    Of each queue only what its spans cover, which must not overlap; None: all of it.
    """
    if not db.is_postgres:
        return _claim_portable(
            db, quotas, worker_id=worker_id, suspects=suspects, now=now
        )
    parameters: dict[str, Any] = {
        "queues": list(quotas),
        "limits": list(quotas.values()),
        "worker_id": worker_id,
        "now": now,
    }
    if suspects is Suspects.ONLY:
        rows = db.execute(CLAIM_SUSPECTS, parameters)
    else:
        parameters |= dump_spans(list(map(whole, quotas)) if spans is None else spans)
        parameters["with_suspects"] = suspects is Suspects.TOO
        rows = db.execute(CLAIM_JOBS, parameters, is_steady=True)
    return _sort_claims(map(Claim._make, rows))


def dump_spans(spans: Sequence[Span]) -> dict[str, list[Any]]:
    """Return the parameters of CLAIM_JOBS that say what to read."""
    columns = ("span_queues", "lows", "afters", "highs")
    return {
        name: [span[number] for span in spans] for number, name in enumerate(columns)
    }


def _sort_claims(claims: Iterable[Claim]) -> list[Claim]:
    # UPDATE … RETURNING keeps no order.
    return sorted(claims, key=attrgetter("rank", "id"))


def _claim_portable(
    db: Database,
    quotas: dict[str, int],
    *,
    worker_id: UUID,
    suspects: Suspects,
    now: datetime | None,
) -> list[Claim]:
    rows = _find_pending(db, suspects)
    # Without this look an idle worker would take SQLite's only write lock each time.
    if not rows.filter(queue__in=list(quotas)).exists():
        return []
    with db.atomic():
        claimed_at = db.read_clock(now)
        jobs: list[Any] = []
        for queue, quota in quotas.items():
            wanted = rows.filter(queue=queue).order_by("rank", "id")
            jobs += _read_jobs(db, wanted)[:quota]
        _take_jobs(db, jobs, worker_id=worker_id, claimed_at=claimed_at)
    return _sort_claims(_make_claim(job, claimed_at) for job in jobs)


def claim_job(
    db: Database, id: UUID, *, worker_id: UUID, now: datetime | None = None
) -> Claim | None:
    """Claim this very job; None if it is not pending.

    For tests, which run one job and not the most urgent. Portable only.
    """
    with db.atomic():
        claimed_at = db.read_clock(now)
        jobs = list(_read_jobs(db, _find_pending(db, Suspects.TOO).filter(pk=id)))
        _take_jobs(db, jobs, worker_id=worker_id, claimed_at=claimed_at)
    return _make_claim(jobs[0], claimed_at) if jobs else None


def _find_pending(db: Database, suspects: Suspects) -> QuerySet[Job]:
    rows: QuerySet[Job] = Job.objects.using(db.alias).filter(status=JobStatus.PENDING)
    if suspects is not Suspects.TOO:
        rows = rows.filter(isolate=suspects is Suspects.ONLY)
    return rows


def _read_jobs(db: Database, rows: QuerySet[Job]) -> QuerySet[Job, Any]:
    """Lock jobs and read what a claim tells of them: not the whole models."""
    names = {"attempt": "attempts"}
    columns = [names.get(name, name) for name in Claim._fields if name != "claimed_at"]
    return db.lock_rows(rows).values_list(*columns, named=True)


def _take_jobs(
    db: Database, jobs: Sequence[Any], *, worker_id: UUID, claimed_at: datetime
) -> None:
    for start in range(0, len(jobs), 500):
        ids = [job.id for job in jobs[start : start + 500]]
        Job.objects.using(db.alias).filter(pk__in=ids, status=JobStatus.PENDING).update(
            status=JobStatus.RUNNING,
            lease_token=F("lease_token") + 1,
            attempts=F("attempts") + 1,
            worker_id=worker_id,
            claimed_at=claimed_at,
            started_at=None,
        )


def _make_claim(job: Any, claimed_at: datetime) -> Claim:
    return Claim(
        id=job.id,
        lease_token=job.lease_token + 1,
        rank=job.rank,
        job_type=job.job_type,
        queue=job.queue,
        priority=job.priority,
        payload=json.dumps(job.payload),
        args=json.dumps(job.args),
        backoff=_dump_or_none(job.backoff),
        attempt=job.attempts + 1,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        given_back=job.given_back,
        run_at=job.run_at,
        claimed_at=claimed_at,
        expires_at=job.expires_at,
        unknown_since=job.unknown_since,
    )


def _dump_or_none(value: Any) -> str | None:
    return None if value is None else json.dumps(value)
