"""Finish, running → scheduled, pending, cancelled, or succeeded after an earlier claim.

Called by finish.py for every end that leaves a live row and a row of its attempt. A job
that was asked to stop becomes cancelled, unless its handler returned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..outcomes import CANCELLED_ERROR
from ..storage.database import Database
from ..storage.endings import (
    NO_RANK,
    Ending,
    Move,
    Written,
    WrittenJob,
    clears_suspicion,
    plan_move,
)
from ..storage.sql_parts import ATTEMPT_COLUMNS, ATTEMPT_VALUES, CLOCK, IS_OWNED

WRITE_MOVED = f"""
    WITH {CLOCK},
    ended AS MATERIALIZED (
        SELECT
            given.*,
            CASE
                WHEN given.wanted = 'succeeded' OR owned.cancel_requested_at IS NULL
                THEN given.wanted
                ELSE 'cancelled'
            END AS status
        FROM unnest(
            %(ids)s::uuid[],
            %(tokens)s::bigint[],
            %(statuses)s::text[],
            %(delays)s::interval[],
            %(raises)s::integer[],
            %(refunds)s::integer[],
            %(troubles)s::integer[],
            %(crashes)s::integer[],
            %(losses)s::integer[],
            %(cleared)s::boolean[],
            %(unknowns)s::boolean[],
            %(kept_ranks)s::boolean[],
            %(progressed)s::boolean[],
            %(results)s::text[],
            %(errors)s::text[],
            %(ages)s::float8[],
            %(numbers)s::integer[],
            %(labels)s::text[],
            %(exception_classes)s::text[],
            %(messages)s::text[],
            %(tracebacks)s::text[]
        ) AS given (
            id,
            token,
            wanted,
            delay,
            raised,
            refund,
            trouble,
            crash,
            loss,
            is_cleared,
            is_unknown,
            keeps_rank,
            is_progress,
            result,
            error,
            age,
            number,
            label,
            exception_class,
            message,
            traceback
        )
        CROSS JOIN LATERAL (
            SELECT job.id, job.cancel_requested_at
            FROM jobqueue_job AS job
            WHERE
                {IS_OWNED}
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS owned
    ),
    moved AS (
        UPDATE jobqueue_job AS job
        SET
            status = ended.status,
            worker_id = NULL,
            lease_token = job.lease_token + ended.raised,
            attempts = greatest(job.attempts - ended.refund, 0),
            given_back = CASE
                WHEN ended.is_progress THEN 0
                ELSE job.given_back + ended.trouble
            END,
            crashes = CASE
                WHEN ended.is_cleared THEN 0
                ELSE job.crashes + ended.crash
            END,
            lost = CASE
                WHEN ended.is_progress THEN 0
                ELSE job.lost + ended.loss
            END,
            isolate = NOT ended.is_cleared AND (job.isolate OR ended.crash = 1),
            unknown_since = CASE
                WHEN ended.is_unknown THEN coalesce(job.unknown_since, clock.now)
            END,
            error = CASE
                WHEN ended.status = ended.wanted THEN ended.error
                ELSE %(cancelled_error)s::text
            END,
            result = ended.result::jsonb,
            started_at = clock.now - ended.age * interval '1 second',
            run_at = CASE
                WHEN ended.status IN ('pending', 'scheduled')
                THEN clock.now + coalesce(ended.delay, '0')
                ELSE job.run_at
            END,
            rank = CASE
                WHEN ended.keeps_rank THEN job.rank
                WHEN ended.status = 'pending'
                THEN (extract(epoch FROM clock.now) * 1000000)::bigint
                    - job.priority * %(aging)s::bigint
                WHEN ended.status = 'scheduled' THEN %(no_rank)s::bigint
                ELSE job.rank
            END,
            unique_key = CASE
                WHEN ended.status IN ('pending', 'scheduled') THEN job.unique_key
            END,
            finished_at = CASE
                WHEN ended.status IN ('succeeded', 'cancelled') THEN clock.now
            END,
            finished_by = %(worker_id)s::uuid,
            prune_at = CASE ended.status
                WHEN 'succeeded' THEN clock.now + %(keep_succeeded)s::interval
                WHEN 'cancelled' THEN clock.now + %(keep_cancelled)s::interval
            END
        FROM ended, clock
        WHERE job.id = ended.id
        RETURNING job.id, job.queue, job.rank, job.status
    ),
    noted AS (
        INSERT INTO jobqueue_attempt (
            {ATTEMPT_COLUMNS}
        )
        SELECT
            ended.id,
            {ATTEMPT_VALUES}
        FROM ended
        JOIN moved ON moved.id = ended.id
        CROSS JOIN clock
        WHERE
            ended.label <> 'succeeded'
            OR ended.token > 1
        ON CONFLICT (job_id, lease_token) DO NOTHING
    )
    SELECT
        moved.id,
        moved.status,
        CASE WHEN moved.status = 'pending' THEN moved.queue END,
        CASE WHEN moved.status = 'pending' THEN moved.rank END
    FROM moved
"""


def write_moved(
    db: Database, endings: Sequence[Ending], shared: Mapping[str, Any]
) -> Written:
    moves: list[Move] = [plan_move(ending.outcome) for ending in endings]
    parameters = {
        **shared,
        "cancelled_error": CANCELLED_ERROR,
        "no_rank": NO_RANK,
        "ids": [ending.claim.id for ending in endings],
        "tokens": [ending.claim.lease_token for ending in endings],
        "statuses": [str(move.status) for move in moves],
        "delays": [move.delay for move in moves],
        "raises": [int(ending.is_taken) for ending in endings],
        "refunds": [move.refund for move in moves],
        "troubles": [move.trouble for move in moves],
        "crashes": [move.crash for move in moves],
        "losses": [move.loss for move in moves],
        "cleared": [clears_suspicion(move.label) for move in moves],
        "unknowns": [move.is_unknown for move in moves],
        "kept_ranks": [move.keeps_rank for move in moves],
        "progressed": [move.is_progress for move in moves],
        "results": [move.result for move in moves],
        "errors": [move.error for move in moves],
        "ages": [ending.age for ending in endings],
        "numbers": [ending.claim.attempt for ending in endings],
        "labels": [str(move.label) for move in moves],
        "exception_classes": [move.failure.exception_class for move in moves],
        "messages": [move.failure.message for move in moves],
        "tracebacks": [move.failure.traceback for move in moves],
    }
    return [WrittenJob(*row) for row in db.execute(WRITE_MOVED, parameters)]
