"""Rescue: running → pending, or the dead letters, when the owner is gone.

Called by any worker whose own heart has beaten for a whole TTL. It starts from silent
heartbeats, locks them so that one which beats again meanwhile is spared, and raises the
lease token, so that whatever the old owner still writes is refused.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connections
from django.db.models import Q

from ..models import Job, WorkerHeartbeat
from ..options import Options
from .bury import bury_lost_jobs
from .database import Database, count_microseconds
from .rescue_portable import rescue_portable
from .rescued import LIMIT, MESSAGE, Rescued

# How long the row of a dead worker stays for people to see.
KEEP_SILENT = timedelta(hours=1)
# On SQLite a live process may be kept from beating by one long transaction.
SPARED_TTLS = 20


def rescue_jobs(
    db: Database,
    *,
    options: Options,
    run_once: Sequence[str] = (),
    now: datetime | None = None,
) -> list[Rescued]:
    """Take up to 500 jobs from workers that are silent or gone.

    `run_once` names the job types whose handlers allow one attempt: they promise at
    most one start, so a loss is the end of them.
    """
    silent = find_silent_workers(db, ttl=options.heartbeat_ttl, now=now)
    if not silent:
        return []
    if not db.is_postgres:
        return rescue_portable(db, silent, options, run_once, now)
    parameters = {
        "workers": silent,
        "ttl": options.heartbeat_ttl,
        "limit": LIMIT,
        "run_once": list(run_once),
        "max_lost": options.max_lost,
        "message": MESSAGE,
        "now": now,
    }
    aging = count_microseconds(options.aging)
    dead = bury_lost_jobs(db, parameters)
    back = db.execute(RESCUE_JOBS, {**parameters, "aging": aging})
    return [Rescued(*row) for row in [*dead, *back]]


FIND_SILENT_WORKERS = """
    SELECT worker.id
    FROM jobqueue_workerheartbeat AS worker
    WHERE
        worker.last_seen_at < (
            SELECT coalesce(%(now)s::timestamptz, clock_timestamp())
        ) - %(ttl)s::interval
    UNION ALL
    SELECT orphan.worker_id
    FROM (
        SELECT DISTINCT job.worker_id
        FROM jobqueue_job AS job
        WHERE job.worker_id IS NOT NULL
    ) AS orphan
    WHERE NOT EXISTS (
        SELECT 1
        FROM jobqueue_workerheartbeat AS worker
        WHERE worker.id = orphan.worker_id
    )
"""


def find_silent_workers(
    db: Database, *, ttl: timedelta, now: datetime | None = None
) -> list[UUID]:
    """Return the workers that are silent for longer than the TTL, or own jobs without
    a heartbeat row."""
    if db.is_postgres:
        return [
            id
            for (id,) in db.execute(
                FIND_SILENT_WORKERS, {"ttl": ttl, "now": now}, is_rare=True
            )
        ]
    now = db.read_clock(now)
    workers = WorkerHeartbeat.objects.using(db.alias)
    silent = [
        worker.pk
        for worker in workers.filter(last_seen_at__lt=now - ttl)
        if not _is_spared(db, worker, now, ttl)
    ]
    owners = Job.objects.using(db.alias).filter(worker_id__isnull=False)
    orphans = owners.exclude(worker_id__in=workers.values("pk"))
    found = orphans.values_list("worker_id", flat=True).distinct()
    return silent + [worker_id for worker_id in found if worker_id is not None]


def _is_spared(
    db: Database, worker: WorkerHeartbeat, now: datetime, ttl: timedelta
) -> bool:
    """Where there is one writer at a time, silence alone is no sign of death."""
    if connections[db.alias].vendor != "sqlite":
        return False
    if (
        worker.host != socket.gethostname()
        or worker.last_seen_at < now - SPARED_TTLS * ttl
    ):
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


# Both statements lock the silent heartbeats and look at them again: a worker that
# beats at this moment is spared. LIMIT stands in a MATERIALIZED CTE: elsewhere it could
# be exceeded.
RESCUE_JOBS = """
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
        SELECT job.id, job.lease_token, job.attempts, job.worker_id, job.claimed_at
        FROM jobqueue_job AS job
        WHERE
            job.worker_id = ANY(ARRAY(SELECT id FROM gone))
            AND job.status = 'running'
        ORDER BY job.id
        LIMIT %(limit)s::integer
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    moved AS (
        UPDATE jobqueue_job AS job
        SET
            status = CASE WHEN job.lost = 0 THEN 'pending' ELSE 'scheduled' END,
            lease_token = job.lease_token + 1,
            attempts = job.attempts - 1,
            lost = job.lost + 1,
            worker_id = NULL,
            error = 'WorkerLost: ' || %(message)s::text,
            run_at = (SELECT now FROM clock) + CASE
                WHEN job.lost = 0 THEN interval '0'
                ELSE least(power(2, least(job.lost, 30)), 300) * interval '1 second'
            END,
            rank = (extract(epoch FROM (SELECT now FROM clock)) * 1000000)::bigint
                - job.priority * %(aging)s::bigint
        WHERE
            job.id = ANY(ARRAY(SELECT id FROM taken))
            AND job.status = 'running'
            AND job.lost + 1 < %(max_lost)s::integer
            AND NOT coalesce(
                job.max_attempts = 1,
                job.job_type = ANY(%(run_once)s::text[])
            )
        RETURNING job.id, job.job_type, job.queue, job.lost, job.rank, job.status
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
            taken.id,
            taken.lease_token,
            taken.attempts,
            taken.worker_id,
            taken.claimed_at,
            'lost',
            'WorkerLost',
            %(message)s::text
        FROM taken
        JOIN moved ON moved.id = taken.id
        ON CONFLICT (job_id, lease_token) DO NOTHING
    )
    SELECT
        moved.id,
        moved.job_type,
        moved.queue,
        taken.worker_id,
        taken.attempts,
        moved.lost,
        CASE WHEN moved.status = 'pending' THEN moved.rank END,
        false
    FROM moved
    JOIN taken ON taken.id = moved.id
"""

FORGET_SILENT_WORKERS = """
    DELETE FROM jobqueue_workerheartbeat AS worker
    WHERE
        worker.last_seen_at < (
            SELECT coalesce(%(now)s::timestamptz, clock_timestamp())
        ) - %(keep)s::interval
        AND NOT EXISTS (
            SELECT 1
            FROM jobqueue_job AS job
            WHERE job.worker_id = worker.id
        )
    RETURNING worker.id
"""


def forget_silent_workers(db: Database, *, now: datetime | None = None) -> int:
    """Delete the rows of workers silent for an hour that own no job any more."""
    if db.is_postgres:
        parameters = {"keep": KEEP_SILENT, "now": now}
        return len(db.execute(FORGET_SILENT_WORKERS, parameters, is_rare=True))
    owners = Job.objects.using(db.alias).filter(worker_id__isnull=False)
    silent = WorkerHeartbeat.objects.using(db.alias).filter(
        Q(last_seen_at__lt=db.read_clock(now) - KEEP_SILENT),
        ~Q(pk__in=owners.values("worker_id")),
    )
    return silent.delete()[0]
