"""Finish, running → dead: one statement moves the whole job to the dead jobs.

Called by finish.py. The dead job keeps id, token, unique key, counters and history. If
a dead job has that id already (a row copied by hand), the new one gets another id and
its meta names the first: neither row is lost, and neither blocks other writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..models.record import COLUMNS
from ..outcomes import Died
from ..states import SHARED_ID_META
from ..storage.database import Database
from ..storage.endings import Ending, Written, WrittenJob, clears_suspicion
from ..storage.sql_parts import ATTEMPT_COLUMNS, ATTEMPT_VALUES, CLOCK, IS_OWNED

# Set by the death itself; every other column of the job is copied.
_SET_COLUMNS = {"error", "started_at", "finished_by"}
_COPIED = [name for name in COLUMNS if name not in _SET_COLUMNS]
_CHANGED = {
    "id": "named.dead_id",
    "crashes": """
            CASE
                WHEN ended.is_cleared THEN 0
                ELSE removed.crashes + ended.crash
            END
    """.strip(),
    "lost": "removed.lost + ended.loss",
    "lease_token": "removed.lease_token + ended.raised",
    "isolate": "NOT ended.is_cleared AND (removed.isolate OR ended.crash = 1)",
    "meta": """
            CASE
                WHEN named.dead_id = removed.id THEN removed.meta
                ELSE removed.meta || jsonb_build_object(%(shared_id)s::text, removed.id)
            END
    """.strip(),
}
_NEXT = ",\n            "

WRITE_DIED = f"""
    WITH {CLOCK},
    ended AS MATERIALIZED (
        SELECT given.*
        FROM unnest(
            %(ids)s::uuid[],
            %(tokens)s::bigint[],
            %(raises)s::integer[],
            %(crashes)s::integer[],
            %(losses)s::integer[],
            %(cleared)s::boolean[],
            %(reasons)s::text[],
            %(errors)s::text[],
            %(fingerprints)s::text[],
            %(ages)s::float8[],
            %(numbers)s::integer[],
            %(labels)s::text[],
            %(exception_classes)s::text[],
            %(messages)s::text[],
            %(tracebacks)s::text[]
        ) AS given (
            id,
            token,
            raised,
            crash,
            loss,
            is_cleared,
            reason,
            error,
            fingerprint,
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
                {IS_OWNED}
                AND job.cancel_requested_at IS NULL
            FOR UPDATE SKIP LOCKED
        ) AS owned
    ),
    removed AS (
        DELETE FROM jobqueue_job
        WHERE id = ANY(ARRAY(SELECT id FROM ended))
        RETURNING
            {_NEXT.join(_COPIED)}
    ),
    named AS MATERIALIZED (
        SELECT
            removed.id,
            CASE
                WHEN (
                    SELECT other.id
                    FROM jobqueue_deadjob AS other
                    WHERE other.id = removed.id
                ) IS NULL
                THEN removed.id
                ELSE gen_random_uuid()
            END AS dead_id
        FROM removed
    ),
    inserted AS (
        INSERT INTO jobqueue_deadjob (
            {_NEXT.join(_COPIED)},
            finished_by,
            started_at,
            error,
            reason,
            fingerprint,
            died_at
        )
        SELECT
            {_NEXT.join(_CHANGED.get(name, f"removed.{name}") for name in _COPIED)},
            %(worker_id)s::uuid,
            clock.now - ended.age * interval '1 second',
            ended.error,
            ended.reason,
            ended.fingerprint,
            clock.now
        FROM removed
        JOIN named ON named.id = removed.id
        JOIN ended ON ended.id = removed.id
        CROSS JOIN clock
        RETURNING id
    ),
    noted AS (
        INSERT INTO jobqueue_attempt (
            {ATTEMPT_COLUMNS}
        )
        SELECT
            named.dead_id,
            {ATTEMPT_VALUES}
        FROM ended
        JOIN named ON named.id = ended.id
        JOIN inserted ON inserted.id = named.dead_id
        CROSS JOIN clock
        ON CONFLICT (job_id, lease_token) DO NOTHING
    )
    SELECT ended.id, 'dead', NULL, NULL, named.dead_id
    FROM ended
    JOIN named ON named.id = ended.id
    JOIN inserted ON inserted.id = named.dead_id
"""


def write_died(
    db: Database, endings: Sequence[Ending], shared: Mapping[str, Any]
) -> Written:
    """Move the jobs of these attempts to the dead jobs; return which were written."""
    deaths = [ending.outcome for ending in endings if isinstance(ending.outcome, Died)]
    failures = [death.failure for death in deaths]
    parameters = {
        "worker_id": shared["worker_id"],
        "now": shared["now"],
        "shared_id": SHARED_ID_META,
        "ids": [ending.claim.id for ending in endings],
        "tokens": [ending.claim.lease_token for ending in endings],
        "raises": [int(ending.is_taken) for ending in endings],
        "crashes": [death.crash for death in deaths],
        "losses": [death.loss for death in deaths],
        "cleared": [clears_suspicion(death.label) for death in deaths],
        "reasons": [str(death.reason) for death in deaths],
        "errors": [failure.short for failure in failures],
        "fingerprints": [failure.fingerprint for failure in failures],
        "ages": [ending.age for ending in endings],
        "numbers": [ending.claim.attempt for ending in endings],
        "labels": [str(death.label) for death in deaths],
        "exception_classes": [failure.exception_class for failure in failures],
        "messages": [failure.message for failure in failures],
        "tracebacks": [failure.traceback for failure in failures],
    }
    return [WrittenJob(*row) for row in db.execute(WRITE_DIED, parameters)]
