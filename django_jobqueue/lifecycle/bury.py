"""Burying: the move of a whole job to the dead letters, in one statement.

Not an arrow of its own: finish buries attempts that ended badly, rescue those that were
lost too often. The job keeps its id, token, key, counters and history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ..models import DeadJob, Job
from ..models.record import JobRecord
from ..outcomes import Died
from .database import Database
from .endings import Ending, Written, clears_suspicion

_NOT_COPIED = {"error", "started_at", "finished_by"}
COPIED = [
    column.attname
    for column in JobRecord._meta.fields
    if column.attname not in _NOT_COPIED
]

WRITE_DIED = """
    WITH clock AS MATERIALIZED (
        SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    ),
    ended AS MATERIALIZED (
        SELECT given.*
        FROM unnest(
            %(ids)s::uuid[],
            %(tokens)s::bigint[],
            %(raises)s::integer[],
            %(crashes)s::integer[],
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
                job.id = given.id
                AND job.lease_token = given.token
                AND job.status = 'running'
                AND job.worker_id IS NOT DISTINCT FROM %(worker_id)s::uuid
            FOR UPDATE SKIP LOCKED
        ) AS owned
    ),
    removed AS (
        DELETE FROM jobqueue_job
        WHERE id = ANY(ARRAY(SELECT id FROM ended))
        RETURNING
            id,
            job_type,
            queue,
            payload,
            args,
            priority,
            run_at,
            attempts,
            max_attempts,
            crashes,
            lost,
            given_back,
            lease_token,
            timeout,
            backoff,
            created_at,
            claimed_at,
            unknown_since,
            isolate,
            unique_key,
            concurrency_key,
            expires_at,
            progress,
            tags,
            meta
    ),
    buried AS (
        INSERT INTO jobqueue_deadjob (
            id,
            job_type,
            queue,
            payload,
            args,
            priority,
            run_at,
            attempts,
            max_attempts,
            crashes,
            lost,
            given_back,
            lease_token,
            timeout,
            backoff,
            created_at,
            claimed_at,
            unknown_since,
            isolate,
            unique_key,
            concurrency_key,
            expires_at,
            progress,
            tags,
            meta,
            finished_by,
            started_at,
            error,
            reason,
            fingerprint,
            died_at
        )
        SELECT
            removed.id,
            removed.job_type,
            removed.queue,
            removed.payload,
            removed.args,
            removed.priority,
            removed.run_at,
            removed.attempts,
            removed.max_attempts,
            CASE
                WHEN ended.is_cleared THEN 0
                ELSE removed.crashes + ended.crash
            END,
            removed.lost,
            removed.given_back,
            removed.lease_token + ended.raised,
            removed.timeout,
            removed.backoff,
            removed.created_at,
            removed.claimed_at,
            removed.unknown_since,
            NOT ended.is_cleared AND (removed.isolate OR ended.crash = 1),
            removed.unique_key,
            removed.concurrency_key,
            removed.expires_at,
            removed.progress,
            removed.tags,
            removed.meta,
            %(worker_id)s::uuid,
            clock.now - ended.age * interval '1 second',
            ended.error,
            ended.reason,
            ended.fingerprint,
            clock.now
        FROM removed
        JOIN ended ON ended.id = removed.id
        CROSS JOIN clock
        RETURNING id
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
        JOIN buried ON buried.id = ended.id
        CROSS JOIN clock
        ON CONFLICT (job_id, lease_token) DO NOTHING
    )
    SELECT id, NULL, NULL
    FROM buried
"""


def write_died(
    db: Database, endings: Sequence[Ending], shared: Mapping[str, Any]
) -> Written:
    """Bury attempts that this worker owns; return what was written, as finish wants
    it."""
    deaths = [ending.outcome for ending in endings if isinstance(ending.outcome, Died)]
    failures = [death.failure for death in deaths]
    parameters = {
        "worker_id": shared["worker_id"],
        "now": shared["now"],
        "ids": [ending.claim.id for ending in endings],
        "tokens": [ending.claim.lease_token for ending in endings],
        "raises": [int(ending.is_taken) for ending in endings],
        "crashes": [death.crash for death in deaths],
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
    return db.execute(WRITE_DIED, parameters)


BURY_LOST_JOBS = """
    WITH clock AS MATERIALIZED (
        SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    ),
    silent AS MATERIALIZED (
        SELECT worker.id
        FROM jobqueue_workerheartbeat AS worker
        WHERE
            worker.id = ANY(%(workers)s::uuid[])
            AND worker.last_seen_at < (SELECT now FROM clock) - %(ttl)s::interval
        ORDER BY worker.id
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    gone AS MATERIALIZED (
        SELECT id
        FROM silent
        UNION ALL
        SELECT orphan.id
        FROM unnest(%(workers)s::uuid[]) AS orphan (id)
        WHERE NOT EXISTS (
            SELECT 1
            FROM jobqueue_workerheartbeat AS worker
            WHERE worker.id = orphan.id
        )
    ),
    taken AS MATERIALIZED (
        SELECT job.id, job.worker_id
        FROM jobqueue_job AS job
        WHERE
            job.worker_id = ANY(ARRAY(SELECT id FROM gone))
            AND job.status = 'running'
            AND (
                job.lost + 1 >= %(max_lost)s::integer
                OR coalesce(
                    job.max_attempts = 1,
                    job.job_type = ANY(%(run_once)s::text[])
                )
            )
        ORDER BY job.id
        LIMIT %(limit)s::integer
        FOR UPDATE SKIP LOCKED
    ),
    removed AS (
        DELETE FROM jobqueue_job
        WHERE id = ANY(ARRAY(SELECT id FROM taken))
        RETURNING
            id,
            job_type,
            queue,
            payload,
            args,
            priority,
            run_at,
            attempts,
            max_attempts,
            crashes,
            lost,
            given_back,
            lease_token,
            timeout,
            backoff,
            created_at,
            claimed_at,
            unknown_since,
            isolate,
            unique_key,
            concurrency_key,
            expires_at,
            progress,
            tags,
            meta
    ),
    buried AS (
        INSERT INTO jobqueue_deadjob (
            id,
            job_type,
            queue,
            payload,
            args,
            priority,
            run_at,
            attempts,
            max_attempts,
            crashes,
            lost,
            given_back,
            lease_token,
            timeout,
            backoff,
            created_at,
            claimed_at,
            unknown_since,
            isolate,
            unique_key,
            concurrency_key,
            expires_at,
            progress,
            tags,
            meta,
            error,
            reason,
            died_at
        )
        SELECT
            removed.id,
            removed.job_type,
            removed.queue,
            removed.payload,
            removed.args,
            removed.priority,
            removed.run_at,
            removed.attempts,
            removed.max_attempts,
            removed.crashes,
            removed.lost + 1,
            removed.given_back,
            removed.lease_token + 1,
            removed.timeout,
            removed.backoff,
            removed.created_at,
            removed.claimed_at,
            removed.unknown_since,
            removed.isolate,
            removed.unique_key,
            removed.concurrency_key,
            removed.expires_at,
            removed.progress,
            removed.tags,
            removed.meta,
            'WorkerLost: ' || %(message)s::text,
            'lost',
            (SELECT now FROM clock)
        FROM removed
        RETURNING id
    ),
    noted AS (
        INSERT INTO jobqueue_attempt (
            job_id,
            lease_token,
            number,
            worker_id,
            started_at,
            outcome,
            exception_class,
            message
        )
        SELECT
            removed.id,
            removed.lease_token,
            removed.attempts,
            taken.worker_id,
            removed.claimed_at,
            'lost',
            'WorkerLost',
            %(message)s::text
        FROM removed
        JOIN taken ON taken.id = removed.id
        ON CONFLICT (job_id, lease_token) DO NOTHING
    )
    SELECT
        removed.id,
        removed.job_type,
        removed.queue,
        taken.worker_id,
        removed.attempts,
        removed.lost + 1,
        NULL::bigint,
        true
    FROM removed
    JOIN buried ON buried.id = removed.id
    JOIN taken ON taken.id = removed.id
"""


def bury_lost_jobs(db: Database, parameters: Mapping[str, Any]) -> list[Any]:
    """Bury the jobs of silent workers that may not start again; see rescue_jobs()."""
    return db.execute(BURY_LOST_JOBS, parameters)


def bury_portable(db: Database, job: Job, *, now: datetime, **columns: Any) -> None:
    """Bury one locked job, on any database; `columns` are those that change."""
    copied = {name: getattr(job, name) for name in COPIED}
    DeadJob.objects.using(db.alias).bulk_create(
        [DeadJob(**{**copied, **columns}, died_at=now)]
    )
    Job.objects.using(db.alias).filter(pk=job.pk).delete()
