"""Finish: running → succeeded, scheduled (retry, snooze), pending (release), cancelled,
or the dead letters.

Called by the worker's finish loop with whatever ended meanwhile, and by atomic jobs
inside their own transaction. One gate for every end: each statement names id, lease
token, status and worker, so that the late write of a rescued attempt is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ..exceptions import LeaseLost
from ..options import Options
from ..outcomes import Died
from ..states import JobStatus
from .bury import write_died
from .database import Database, count_microseconds, dump_array
from .endings import (
    Ending,
    Move,
    Written,
    clears_suspicion,
    plan_move,
    retell,
    simplify,
)
from .finish_portable import finish_portable
from .settle import lock_owned


@dataclass(slots=True)
class FinishReport:
    """What became of a batch of endings."""

    done: list[Ending] = field(default_factory=list)
    # Somebody else holds the row: to be written with the next batch.
    busy: list[Ending] = field(default_factory=list)
    # The job was taken away: nothing was written.
    lost: list[Ending] = field(default_factory=list)
    # {queue: lowest rank} of the jobs that became pending, to notify workers.
    pending: dict[str, int] = field(default_factory=dict)


def finish_attempts(
    db: Database,
    endings: Sequence[Ending],
    *,
    worker_id: UUID,
    options: Options,
    now: datetime | None = None,
) -> FinishReport:
    """Write the ends of attempts; each statement commits by itself.

    A row that another transaction holds, or a text that the database refuses, delays or
    spoils that one job only.
    """
    report = FinishReport()
    if not db.is_postgres:
        finish_portable(
            db, endings, report, worker_id=worker_id, options=options, now=now
        )
        return report
    quick, moved, died = _divide(endings)
    shared = {"worker_id": worker_id, "now": now}
    kept = {**shared, **_read_retention(options)}
    is_kept = options.retention["succeeded"].age != timedelta()
    write_quick = _write_succeeded if is_kept else _delete_succeeded
    _write_batch(db, quick, report, write_quick, kept if is_kept else shared)
    aging = count_microseconds(options.aging)
    _write_batch(db, moved, report, _write_moved, {**kept, "aging": aging})
    _write_batch(db, died, report, write_died, shared)
    return report


def finish_in_transaction(
    db: Database, ending: Ending, *, worker_id: UUID, options: Options
) -> None:
    """Write the end of an atomic job inside its own open transaction.

    Waits for the row if somebody else holds it. Raises LeaseLost if the job was taken
    away: the caller must roll back.
    """
    if not db.is_postgres:
        # Not left to the report: there, what has ended under our token is done.
        if not lock_owned(db, ending.claim, worker_id=worker_id):
            raise LeaseLost
        report = FinishReport()
        finish_portable(db, [ending], report, worker_id=worker_id, options=options)
        return
    db.execute(
        LOCK_OWN_JOB,
        {
            "id": ending.claim.id,
            "token": ending.claim.lease_token,
            "worker_id": worker_id,
        },
    )
    aging = count_microseconds(options.aging)
    shared = {"worker_id": worker_id, "now": None, "aging": aging}
    written = _write_moved(db, [ending], {**shared, **_read_retention(options)})
    if not written:
        raise LeaseLost


# Held by others for a moment (an admin page, a progress write): wait, do not skip.
LOCK_OWN_JOB = """
    SELECT id
    FROM jobqueue_job
    WHERE
        id = %(id)s::uuid
        AND lease_token = %(token)s::bigint
        AND status = 'running'
        AND worker_id IS NOT DISTINCT FROM %(worker_id)s::uuid
    FOR NO KEY UPDATE
"""


def _divide(
    endings: Sequence[Ending],
) -> tuple[list[Ending], list[Ending], list[Ending]]:
    """Return the quick ones, the other moves and the deaths."""
    quick: list[Ending] = []
    moved: list[Ending] = []
    died: list[Ending] = []
    for ending in endings:
        if ending.is_quick:
            quick.append(ending)
        elif isinstance(ending.outcome, Died):
            died.append(ending)
        else:
            moved.append(ending)
    return quick, moved, died


def _read_retention(options: Options) -> dict[str, timedelta | None]:
    return {
        "keep_succeeded": options.retention["succeeded"].delay,
        "keep_cancelled": options.retention["cancelled"].delay,
    }


# None: all of them were written, and none became pending.
_Write = Callable[[Database, Sequence[Ending], Mapping[str, Any]], Written | None]


def _write_batch(
    db: Database,
    endings: Sequence[Ending],
    report: FinishReport,
    write: _Write,
    shared: Mapping[str, Any],
) -> None:
    """Write one batch; halve it when the database refuses a value in it."""
    if not endings:
        return
    try:
        with db.shielded():
            written = write(db, endings, shared)
    except Exception as error:
        if not _is_refusal(error):
            raise
        if len(endings) > 1:
            middle = len(endings) // 2
            _write_batch(db, endings[:middle], report, write, shared)
            _write_batch(db, endings[middle:], report, write, shared)
            return
        [ending] = endings
        written = (write_died if isinstance(ending.outcome, Died) else _write_moved)(
            db, [simplify(ending)], {"aging": 0, **shared}
        )
    if written is None:
        report.done += endings
        return
    done = {id for id, _, _ in written}
    for _, queue, rank in written:
        if queue is not None and rank is not None:
            report.pending[queue] = min(rank, report.pending.get(queue, rank))
    missing: list[Ending] = []
    for ending in endings:
        (report.done if ending.claim.id in done else missing).append(ending)
    _settle(db, missing, report, worker_id=shared["worker_id"])


def _is_refusal(error: Exception) -> bool:
    cause = error.__cause__ or error
    state = getattr(cause, "sqlstate", None) or ""
    return state[:2] in {"22", "23", "54"}


WRITE_SUCCEEDED = """
    WITH ended AS MATERIALIZED (
        SELECT given.id, given.result, given.age
        FROM unnest(
            %(ids)s::uuid[],
            %(tokens)s::bigint[],
            %(results)s::text[],
            %(ages)s::float8[]
        ) AS given (id, token, result, age)
        CROSS JOIN LATERAL (
            SELECT job.id
            FROM jobqueue_job AS job
            WHERE
                job.id = given.id
                AND job.lease_token = given.token
                AND job.status = 'running'
                AND job.worker_id IS NOT DISTINCT FROM %(worker_id)s::uuid
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS owned
    ),
    clock AS MATERIALIZED (
        SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    ),
    written AS (
        UPDATE jobqueue_job AS job
        SET
            status = 'succeeded',
            worker_id = NULL,
            unique_key = NULL,
            unknown_since = NULL,
            error = '',
            result = ended.result::jsonb,
            started_at = clock.now - ended.age * interval '1 second',
            finished_at = clock.now,
            finished_by = %(worker_id)s::uuid,
            prune_at = clock.now + %(keep_succeeded)s::interval
        FROM ended, clock
        WHERE job.id = ended.id
        RETURNING job.id
    )
    SELECT CASE WHEN count(*) < %(count)s THEN coalesce(array_agg(id), '{}') END
    FROM written
"""


def _write_succeeded(
    db: Database, endings: Sequence[Ending], shared: Mapping[str, Any]
) -> Written | None:
    results = [ending.outcome.result for ending in endings]  # type: ignore[union-attr]
    now = time.monotonic()
    parameters = {
        **shared,
        **_name_attempts(endings),
        # What is missing at the end of an array is NULL.
        "results": results if any(results) else [],
        "ages": dump_array(
            "NULL" if ending.started is None else now - ending.started
            for ending in endings
        ),
    }
    return _read_written(db.execute(WRITE_SUCCEEDED, parameters))


def _name_attempts(endings: Sequence[Ending]) -> dict[str, Any]:
    """Return who is meant, as texts made in one go: psycopg takes a value at a time,
    which cost an eighth of a worker's processor time (make profile)."""
    return {
        "ids": dump_array(ending.claim.id.hex for ending in endings),
        "tokens": dump_array(ending.claim.lease_token for ending in endings),
        "count": len(endings),
    }


def _read_written(rows: list[Any]) -> Written | None:
    """Read which ones were written; None for all of them, the usual answer."""
    [[ids]] = rows
    return None if ids is None else [(id, None, None) for id in ids]


DELETE_SUCCEEDED = """
    WITH ended AS MATERIALIZED (
        SELECT given.id
        FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS given (id, token)
        CROSS JOIN LATERAL (
            SELECT job.id
            FROM jobqueue_job AS job
            WHERE
                job.id = given.id
                AND job.lease_token = given.token
                AND job.status = 'running'
                AND job.worker_id IS NOT DISTINCT FROM %(worker_id)s::uuid
            FOR UPDATE SKIP LOCKED
        ) AS owned
    ),
    deleted AS (
        DELETE FROM jobqueue_job
        WHERE id = ANY(ARRAY(SELECT id FROM ended))
        RETURNING id
    )
    SELECT CASE WHEN count(*) < %(count)s THEN coalesce(array_agg(id), '{}') END
    FROM deleted
"""


def _delete_succeeded(
    db: Database, endings: Sequence[Ending], shared: Mapping[str, Any]
) -> Written | None:
    """RETENTION 0: a success leaves nothing behind."""
    parameters = {"worker_id": shared["worker_id"], **_name_attempts(endings)}
    return _read_written(db.execute(DELETE_SUCCEEDED, parameters))


WRITE_MOVED = """
    WITH clock AS MATERIALIZED (
        SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    ),
    ended AS MATERIALIZED (
        SELECT given.*
        FROM unnest(
            %(ids)s::uuid[],
            %(tokens)s::bigint[],
            %(statuses)s::text[],
            %(delays)s::interval[],
            %(raises)s::integer[],
            %(refunds)s::integer[],
            %(troubles)s::integer[],
            %(crashes)s::integer[],
            %(cleared)s::boolean[],
            %(unknowns)s::boolean[],
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
            status,
            delay,
            raised,
            refund,
            trouble,
            crash,
            is_cleared,
            is_unknown,
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
            SELECT job.id
            FROM jobqueue_job AS job
            WHERE
                job.id = given.id
                AND job.lease_token = given.token
                AND job.status = 'running'
                AND job.worker_id IS NOT DISTINCT FROM %(worker_id)s::uuid
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS owned
    ),
    moved AS (
        UPDATE jobqueue_job AS job
        SET
            status = ended.status,
            worker_id = NULL,
            lease_token = job.lease_token + ended.raised,
            attempts = job.attempts - ended.refund,
            given_back = job.given_back + ended.trouble,
            crashes = CASE
                WHEN ended.is_cleared THEN 0
                ELSE job.crashes + ended.crash
            END,
            isolate = NOT ended.is_cleared AND (job.isolate OR ended.crash = 1),
            unknown_since = CASE
                WHEN ended.is_unknown THEN coalesce(job.unknown_since, clock.now)
            END,
            error = ended.error,
            result = ended.result::jsonb,
            started_at = clock.now - ended.age * interval '1 second',
            run_at = CASE
                WHEN ended.status IN ('pending', 'scheduled')
                THEN clock.now + coalesce(ended.delay, '0')
                ELSE job.run_at
            END,
            rank = CASE
                WHEN ended.status = 'pending'
                THEN (extract(epoch FROM clock.now) * 1000000)::bigint
                    - job.priority * %(aging)s::bigint
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
            job_id,
            lease_token,
            number,
            worker_id,
            started_at,
            finished_at,
            outcome,
            exception_class,
            message,
            traceback
        )
        SELECT
            ended.id,
            ended.token,
            ended.number,
            %(worker_id)s::uuid,
            clock.now - ended.age * interval '1 second',
            clock.now,
            ended.label,
            ended.exception_class,
            ended.message,
            ended.traceback
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
        CASE WHEN moved.status = 'pending' THEN moved.queue END,
        CASE WHEN moved.status = 'pending' THEN moved.rank END
    FROM moved
"""


def _write_moved(
    db: Database, endings: Sequence[Ending], shared: Mapping[str, Any]
) -> Written:
    moves: list[Move] = [plan_move(ending.outcome) for ending in endings]  # type: ignore[arg-type]
    parameters = {
        **shared,
        "ids": [ending.claim.id for ending in endings],
        "tokens": [ending.claim.lease_token for ending in endings],
        "statuses": [str(move.status) for move in moves],
        "delays": [move.delay for move in moves],
        "raises": [int(ending.is_taken) for ending in endings],
        "refunds": [move.refund for move in moves],
        "troubles": [move.trouble for move in moves],
        "crashes": [move.crash for move in moves],
        "cleared": [clears_suspicion(move.label) for move in moves],
        "unknowns": [move.is_unknown for move in moves],
        "results": [move.result for move in moves],
        "errors": [move.error for move in moves],
        "ages": [ending.age for ending in endings],
        "numbers": [ending.claim.attempt for ending in endings],
        "labels": [str(move.label) for move in moves],
        "exception_classes": [move.failure.exception_class for move in moves],
        "messages": [move.failure.message for move in moves],
        "tracebacks": [move.failure.traceback for move in moves],
    }
    return db.execute(WRITE_MOVED, parameters)


# The attempt is the one before the present token: who took it away has noted it.
READ_ENDS = """
    SELECT
        job.id,
        job.status,
        job.lease_token,
        job.worker_id,
        attempt.outcome
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
        attempt.outcome
    FROM jobqueue_deadjob AS dead
    LEFT JOIN jobqueue_attempt AS attempt
        ON attempt.job_id = dead.id
        AND attempt.lease_token = dead.lease_token - 1
    WHERE dead.id = ANY(%(ids)s::uuid[])
"""


def _settle(
    db: Database, missing: Sequence[Ending], report: FinishReport, *, worker_id: UUID
) -> None:
    """Find out why rows did not come back: locked by someone, ended by us, or lost."""
    if not missing:
        return
    ids = [ending.claim.id for ending in missing]
    found = {row[0]: tuple(row[1:]) for row in db.execute(READ_ENDS, {"ids": ids})}
    for ending in missing:
        status, token, owner, taken = found.get(ending.claim.id, (None,) * 4)
        is_running = status == JobStatus.RUNNING
        if is_running and (token, owner) == (ending.claim.lease_token, worker_id):
            report.busy.append(ending)
        elif status and not is_running and ending.is_same_end(token, taken):
            # An earlier try was committed, only its reply was lost.
            report.done.append(retell(ending, status))
        else:
            report.lost.append(ending)
