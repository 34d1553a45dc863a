"""Finish, running → succeeded: the usual end, written for many jobs at a time.

Called by finish.py. Each statement proves that the claims are still ours. It answers
with one row, which names the jobs that were not written: usually none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..states import JobStatus
from ..storage.database import Database, dump_array
from ..storage.endings import Ending, Written, WrittenJob
from ..storage.sql_parts import CLOCK, IS_OWNED

WRITE_SUCCEEDED = f"""
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
                {IS_OWNED}
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS owned
    ),
    {CLOCK},
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
    SELECT CASE WHEN count(*) < %(count)s THEN coalesce(array_agg(id), '{{}}') END
    FROM written
"""


def write_succeeded(
    db: Database, endings: Sequence[Ending], shared: Mapping[str, Any]
) -> Written | None:
    results = [ending.outcome.result for ending in endings]  # type: ignore[union-attr]
    now = time.monotonic()
    parameters = {
        **shared,
        **_name_attempts(endings),
        # unnest() fills a shorter array with NULL.
        "results": results if any(results) else [],
        "ages": dump_array(
            "NULL" if ending.started is None else now - ending.started
            for ending in endings
        ),
    }
    return _read_written(db.execute(WRITE_SUCCEEDED, parameters))


def _name_attempts(endings: Sequence[Ending]) -> dict[str, Any]:
    """Return ids and tokens as array texts.

    psycopg converts lists value by value, which cost an eighth of a worker's processor
    time (make profile).
    """
    return {
        "ids": dump_array(ending.claim.id.hex for ending in endings),
        "tokens": dump_array(ending.claim.lease_token for ending in endings),
        "count": len(endings),
    }


def _read_written(rows: list[Any]) -> Written | None:
    """Return which jobs were written; None: all of them, the usual case."""
    [[ids]] = rows
    if ids is None:
        return None
    return [WrittenJob(id, JobStatus.SUCCEEDED) for id in ids]


# For RETENTION 0: an UPDATE and a later DELETE would write each row twice.
DELETE_SUCCEEDED = f"""
    WITH ended AS MATERIALIZED (
        SELECT given.id
        FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS given (id, token)
        CROSS JOIN LATERAL (
            SELECT job.id
            FROM jobqueue_job AS job
            WHERE
                {IS_OWNED}
            FOR UPDATE SKIP LOCKED
        ) AS owned
    ),
    deleted AS (
        DELETE FROM jobqueue_job
        WHERE id = ANY(ARRAY(SELECT id FROM ended))
        RETURNING id
    )
    SELECT CASE WHEN count(*) < %(count)s THEN coalesce(array_agg(id), '{{}}') END
    FROM deleted
"""


def delete_succeeded(
    db: Database, endings: Sequence[Ending], shared: Mapping[str, Any]
) -> Written | None:
    """Delete the jobs of these attempts: RETENTION 0 keeps no success."""
    parameters = {"worker_id": shared["worker_id"], **_name_attempts(endings)}
    return _read_written(db.execute(DELETE_SUCCEEDED, parameters))
