"""Claim: pending → running. Hands out Claims, a worker's right to one attempt.

Called by the worker's claim loop when it has free slots. Each claim adds 1 to the lease
token, which every later write of the attempt must name. Must run in autocommit: the
claim has to be visible before the attempt begins.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connections

from ..storage.bounded_waits import bounded_waits
from ..storage.claims import CLAIM_COLUMNS, Claim, Span, Suspects, whole_queue
from ..storage.database import Database
from ..storage.row_by_row import EACH_SECONDS, write_each
from .portable import claim as portable

_NEXT = ",\n        "

# IS NOT DISTINCT FROM, not =, where the rows are known by id: a plain comparison allows
# the partial index, and with statistics of an empty queue the planner walked all of it
# (11,680 pages for 50 jobs, 677 by the primary key).
_TAKE_CHOSEN = f"""
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
        {_NEXT.join(f"job.{name}" for name in CLAIM_COLUMNS)}
""".strip()

CLAIM_JOBS = f"""
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
                    AND (job.rank, job.id) >= (span.low, span.after)
                    AND job.rank <= span.high
                    AND job.id <> ALL(%(passed)s::uuid[])
                    AND (NOT job.isolate OR %(with_suspects)s::boolean)
                ORDER BY job.rank, job.id
                LIMIT wanted.quota
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS candidate
            WHERE span.queue = wanted.queue
            LIMIT wanted.quota
        ) AS picked
    )
    {_TAKE_CHOSEN}
"""

# Not a parameter of CLAIM_JOBS: only the plain condition `isolate` lets the planner use
# the index of suspects, else it reads all pending jobs, perhaps a million.
CLAIM_SUSPECTS = f"""
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
                AND job.id <> ALL(%(passed)s::uuid[])
            ORDER BY job.rank, job.id
            LIMIT wanted.quota
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS candidate
    )
    {_TAKE_CHOSEN}
"""


def claim_jobs(
    db: Database,
    quotas: dict[str, int],
    *,
    worker_id: UUID,
    suspects: Suspects = Suspects.INCLUDED,
    spans: Sequence[Span] | None = None,
    passed: Sequence[UUID] = (),
    now: datetime | None = None,
) -> list[Claim]:
    """Claim the most urgent jobs, up to its quota from each queue.

    From each queue only what its spans cover, which must not overlap; None: all of it.
    Skips the jobs in `passed`.
    """
    if not db.is_postgres:
        return _sort_claims(
            portable.claim_jobs(
                db,
                quotas,
                worker_id=worker_id,
                suspects=suspects,
                passed=passed,
                now=now,
            )
        )
    parameters: dict[str, Any] = {
        "queues": list(quotas),
        "limits": list(quotas.values()),
        "passed": list(passed),
        "worker_id": worker_id,
        "now": now,
    }
    if suspects is Suspects.ONLY:
        rows = db.execute(CLAIM_SUSPECTS, parameters)
    else:
        if spans is None:
            spans = list(map(whole_queue, quotas))
        parameters |= dump_spans(spans)
        parameters["with_suspects"] = suspects is Suspects.INCLUDED
        rows = db.execute(CLAIM_JOBS, parameters, is_steady=True)
    return _sort_claims(map(Claim._make, rows))


def dump_spans(spans: Sequence[Span]) -> dict[str, list[Any]]:
    """Return the parameters of CLAIM_JOBS that name the parts of queues to read."""
    columns = ("span_queues", "lows", "afters", "highs")
    return {
        name: [span[number] for span in spans] for number, name in enumerate(columns)
    }


def _sort_claims(claims: Iterable[Claim]) -> list[Claim]:
    # UPDATE … RETURNING keeps no order.
    return sorted(claims, key=attrgetter("rank", "id"))


# Queues with a pending job that no session holds. Read after a claim that returned none
# of their jobs: then a trigger suppressed the write, or another session was faster.
FIND_FREE_QUEUES = """
    WITH free AS MATERIALIZED (
        SELECT wanted.queue
        FROM unnest(%(queues)s::text[]) AS wanted (queue)
        CROSS JOIN LATERAL (
            SELECT job.id
            FROM jobqueue_job AS job
            WHERE
                job.status = 'pending'
                AND job.queue = wanted.queue
                AND (NOT job.isolate OR %(with_suspects)s::boolean)
                AND job.id <> ALL(%(passed)s::uuid[])
            ORDER BY job.rank, job.id
            LIMIT 1
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS candidate
    )
    SELECT queue
    FROM free
"""


def find_free_queues(
    db: Database,
    queues: Iterable[str],
    *,
    suspects: Suspects,
    passed: Sequence[UUID] = (),
) -> list[str]:
    """Return which of these queues have a job to claim.

    PostgreSQL only: the portable claim itself raises if a row was not written.
    """
    if not db.is_postgres:
        return []
    if suspects is Suspects.ONLY:
        rows = portable.find_pending(db, suspects, passed).filter(
            queue__in=list(queues)
        )
        return list(rows.order_by().values_list("queue", flat=True).distinct())
    parameters = {
        "queues": list(queues),
        "with_suspects": suspects is Suspects.INCLUDED,
        "passed": list(passed),
    }
    return [name for (name,) in db.execute(FIND_FREE_QUEUES, parameters)]


# Rows that claim_each() tries in a queue: a few bad ones must not hide the others.
EACH_JOBS = 200


class ClaimedEach(NamedTuple):
    """What became of a claim row by row."""

    claims: list[Claim]
    # {id: error} of the jobs that the database refused.
    refused: dict[UUID, str]


def claim_each(
    db: Database,
    quotas: dict[str, int],
    *,
    worker_id: UUID,
    suspects: Suspects = Suspects.INCLUDED,
    passed: Sequence[UUID] = (),
    now: datetime | None = None,
) -> ClaimedEach:
    """Claim row by row and skip rows that fail; the fallback of claim_jobs().

    For a row that only the database can refuse, for example by a user's trigger. Runs
    on Django's connection of this thread.
    """
    rows = portable.find_pending(db, suspects, passed).order_by("rank", "id")
    claims: list[Claim] = []
    refused: dict[UUID, str] = {}
    deadline = time.monotonic() + EACH_SECONDS
    try:
        for queue, quota in quotas.items():
            with db.atomic(), bounded_waits(db):
                pending = rows.filter(queue=queue).values_list("id", flat=True)
                ids = list(pending[:EACH_JOBS])
            claimed, failed = write_each(
                db,
                ids,
                lambda id: portable.claim_job(db, id, worker_id=worker_id, now=now),
                limit=quota,
                deadline=deadline,
            )
            claims += claimed
            refused |= failed
    finally:
        if db.own is not None:
            connections[db.alias].close()
    return ClaimedEach(_sort_claims(claims), refused)
