"""Claim: pending → running. Hands out Claims, a worker's right to one attempt.

Called by the worker's claim loop when it has free slots. Each claim adds 1 to the lease
token, which every later write of the attempt must name. Must run in autocommit: the
claim has to be visible before the attempt begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import F, Q

from ..models import Job
from ..states import JobStatus
from .database import Database


class Claim(NamedTuple):
    """One claimed job, light: a full Job is only made where somebody asks for it.

    A tuple because thousands are made each second, and it is built straight from a row.
    """

    id: UUID
    lease_token: int
    rank: int
    job_type: str
    queue: str
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
        SELECT candidate.id
        FROM unnest(%(queues)s::text[], %(limits)s::integer[]) AS wanted (queue, quota)
        CROSS JOIN LATERAL (
            SELECT job.id
            FROM jobqueue_job AS job
            WHERE
                job.status = 'pending'
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
    now: datetime | None = None,
) -> list[Claim]:
    """Claim the most urgent jobs, up to its quota from each queue."""
    if not db.is_postgres:
        return _claim_portable(db, quotas, worker_id=worker_id, now=now)
    rows = db.execute(
        CLAIM_JOBS,
        {
            "queues": list(quotas),
            "limits": list(quotas.values()),
            "worker_id": worker_id,
            "now": now,
        },
    )
    return _sort_claims(map(Claim._make, rows))


def _sort_claims(claims: Iterable[Claim]) -> list[Claim]:
    # UPDATE … RETURNING keeps no order.
    return sorted(claims, key=attrgetter("rank", "id"))


def _claim_portable(
    db: Database, quotas: dict[str, int], *, worker_id: UUID, now: datetime | None
) -> list[Claim]:
    rows = Job.objects.using(db.alias).filter(status=JobStatus.PENDING)
    # Without this look an idle worker would take SQLite's only write lock each time.
    if not rows.filter(queue__in=list(quotas)).exists():
        return []
    with db.atomic():
        claimed_at = db.read_clock(now)
        jobs: list[Job] = []
        for queue, quota in quotas.items():
            wanted = rows.filter(queue=queue).order_by("rank", "id")
            jobs += db.lock_rows(wanted)[:quota]
        _take_jobs(db, jobs, worker_id=worker_id, claimed_at=claimed_at)
    return _sort_claims(_make_claim(job, claimed_at) for job in jobs)


def _take_jobs(
    db: Database, jobs: Sequence[Job], *, worker_id: UUID, claimed_at: datetime
) -> None:
    for start in range(0, len(jobs), 500):
        ids = [job.pk for job in jobs[start : start + 500]]
        Job.objects.using(db.alias).filter(pk__in=ids, status=JobStatus.PENDING).update(
            status=JobStatus.RUNNING,
            lease_token=F("lease_token") + 1,
            attempts=F("attempts") + 1,
            worker_id=worker_id,
            claimed_at=claimed_at,
            started_at=None,
        )


def _make_claim(job: Job, claimed_at: datetime) -> Claim:
    return Claim(
        id=job.pk,
        lease_token=job.lease_token + 1,
        rank=job.rank,
        job_type=job.job_type,
        queue=job.queue,
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


FIND_PENDING_QUEUES = """
    WITH RECURSIVE found AS (
        (
            SELECT queue
            FROM jobqueue_job
            WHERE status = 'pending'
            ORDER BY queue
            LIMIT 1
        )
        UNION ALL
        SELECT (
            SELECT job.queue
            FROM jobqueue_job AS job
            WHERE
                job.status = 'pending'
                AND job.queue > found.queue
            ORDER BY job.queue
            LIMIT 1
        )
        FROM found
        WHERE found.queue IS NOT NULL
    )
    SELECT queue
    FROM found
    WHERE queue IS NOT NULL
"""


def find_pending_queues(db: Database) -> list[str]:
    """Return the names of the queues with pending jobs: one index probe for each."""
    if db.is_postgres:
        return [queue for (queue,) in db.execute(FIND_PENDING_QUEUES, {})]
    rows = Job.objects.using(db.alias).filter(status=JobStatus.PENDING)
    return list(rows.order_by("queue").values_list("queue", flat=True).distinct())


FIND_NEXT_DUE = """
    SELECT extract(
        epoch FROM min(run_at) - coalesce(%(now)s::timestamptz, clock_timestamp())
    )
    FROM jobqueue_job
    WHERE status = 'scheduled'
"""


def find_next_due(db: Database, *, now: datetime | None = None) -> float | None:
    """Return the seconds until the next scheduled job is due, None if there is none."""
    if db.is_postgres:
        [[seconds]] = db.execute(FIND_NEXT_DUE, {"now": now})
        return None if seconds is None else float(seconds)
    rows = Job.objects.using(db.alias).filter(status=JobStatus.SCHEDULED)
    first = rows.order_by("run_at").values_list("run_at", flat=True).first()
    return None if first is None else (first - db.read_clock(now)).total_seconds()


HAS_WORK = """
    SELECT
        EXISTS (
            SELECT 1
            FROM jobqueue_job
            WHERE
                status = 'pending'
                AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[]))
                AND queue <> ALL(%(exclude)s::text[])
        )
        OR EXISTS (
            SELECT 1
            FROM jobqueue_job
            WHERE
                worker_id IS NOT NULL
                AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[]))
                AND queue <> ALL(%(exclude)s::text[])
        )
        OR EXISTS (
            SELECT 1
            FROM jobqueue_job
            WHERE
                status = 'scheduled'
                AND run_at <= (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))
                AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[]))
                AND queue <> ALL(%(exclude)s::text[])
        )
"""


def has_work(
    db: Database,
    queues: list[str] | None,
    *,
    exclude: list[str],
    now: datetime | None = None,
) -> bool:
    """Tell whether anything of these queues (None: all) is pending, running or due."""
    if db.is_postgres:
        parameters = {"queues": queues, "exclude": exclude, "now": now}
        [[answer]] = db.execute(HAS_WORK, parameters)
        return bool(answer)
    rows = Job.objects.using(db.alias).exclude(queue__in=exclude)
    if queues is not None:
        rows = rows.filter(queue__in=queues)
    is_due = Q(status=JobStatus.SCHEDULED, run_at__lte=db.read_clock(now))
    is_live = Q(status__in=[JobStatus.PENDING, JobStatus.RUNNING])
    return bool(rows.filter(is_live | is_due).exists())
