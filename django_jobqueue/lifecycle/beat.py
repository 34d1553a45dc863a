"""The heartbeat row of a worker: registered before its first claim, removed last.

Called by worker/heartbeat.py. A beat after a gap longer than the TTL sets
`beating_since` anew: such a worker leaves others alone until it has been steady for a
TTL.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ..models import Queue, WorkerHeartbeat
from .database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """What a worker is; does not change while it lives."""

    id: UUID
    host: str
    pid: int
    name: str
    queues: dict[str, int]
    concurrency: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What a worker does at the moment of a beat."""

    state: str
    processed: int
    failed: int
    running: int
    memory: int


@dataclass(frozen=True, slots=True)
class BeatReply:
    """What the database answered."""

    # Whether this worker has been steady for a TTL, so that it may rescue others.
    is_steady: bool
    # Whether some worker is silent.
    is_someone_silent: bool


BEAT = """
    WITH clock AS MATERIALIZED (
        SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    )
    INSERT INTO jobqueue_workerheartbeat AS worker (
        id,
        host,
        pid,
        name,
        queues,
        concurrency,
        version,
        started_at,
        last_seen_at,
        beating_since,
        state,
        processed,
        failed,
        running,
        memory
    )
    SELECT
        %(id)s::uuid,
        %(host)s::text,
        %(pid)s::integer,
        %(name)s::text,
        %(queues)s::jsonb,
        %(concurrency)s::integer,
        %(version)s::text,
        clock.now,
        clock.now,
        clock.now,
        %(state)s::text,
        %(processed)s::bigint,
        %(failed)s::bigint,
        %(running)s::integer,
        %(memory)s::bigint
    FROM clock
    ON CONFLICT (id) DO UPDATE
    SET
        beating_since = CASE
            WHEN worker.last_seen_at < EXCLUDED.last_seen_at - %(ttl)s::interval
            THEN EXCLUDED.last_seen_at
            ELSE worker.beating_since
        END,
        last_seen_at = EXCLUDED.last_seen_at,
        state = EXCLUDED.state,
        processed = EXCLUDED.processed,
        failed = EXCLUDED.failed,
        running = EXCLUDED.running,
        memory = EXCLUDED.memory
    RETURNING
        worker.beating_since < worker.last_seen_at - %(ttl)s::interval,
        EXISTS (
            SELECT 1
            FROM jobqueue_workerheartbeat AS other
            WHERE
                other.id <> worker.id
                AND other.last_seen_at < worker.last_seen_at - %(ttl)s::interval
        )
"""


def beat(
    db: Database,
    worker: WorkerIdentity,
    pulse: Pulse,
    *,
    ttl: timedelta,
    now: datetime | None = None,
) -> BeatReply:
    """Write the worker's row, making it if it is missing."""
    if not db.is_postgres:
        return _beat_portable(db, worker, pulse, ttl=ttl, now=now)
    parameters: dict[str, Any] = {**asdict(worker), **asdict(pulse)}
    parameters |= {"queues": json.dumps(worker.queues), "ttl": ttl, "now": now}
    [row] = db.execute(BEAT, parameters)
    return BeatReply(*row)


def _beat_portable(
    db: Database,
    worker: WorkerIdentity,
    pulse: Pulse,
    *,
    ttl: timedelta,
    now: datetime | None,
) -> BeatReply:
    rows = WorkerHeartbeat.objects.using(db.alias)
    with db.atomic():
        now = db.read_clock(now)
        row = rows.filter(pk=worker.id).first()
        if row is None:
            since = now
            rows.create(
                **asdict(worker),
                **asdict(pulse),
                started_at=now,
                last_seen_at=now,
                beating_since=now,
            )
        else:
            since = now if row.last_seen_at < now - ttl else row.beating_since
            rows.filter(pk=worker.id).update(
                **asdict(pulse), last_seen_at=now, beating_since=since
            )
    others = rows.exclude(pk=worker.id).filter(last_seen_at__lt=now - ttl)
    return BeatReply(since < now - ttl, others.exists())


def deregister(db: Database, worker_id: UUID) -> None:
    """Delete the row of a worker that exits cleanly, the last thing it does.

    Kept while a job bears its id: then rescue needs the row to know the owner is gone.
    """
    if db.is_postgres:
        db.execute(DEREGISTER, {"worker_id": worker_id})
        return
    from ..models import Job

    if not Job.objects.using(db.alias).filter(worker_id=worker_id).exists():
        WorkerHeartbeat.objects.using(db.alias).filter(pk=worker_id).delete()


DEREGISTER = """
    DELETE FROM jobqueue_workerheartbeat AS worker
    WHERE
        worker.id = %(worker_id)s::uuid
        AND NOT EXISTS (
            SELECT 1
            FROM jobqueue_job AS job
            WHERE job.worker_id = worker.id
        )
    RETURNING worker.id
"""


REMEMBER_QUEUES = """
    INSERT INTO jobqueue_queue (name)
    SELECT name
    FROM unnest(%(names)s::text[]) AS new (name)
    ORDER BY name
    ON CONFLICT (name) DO NOTHING
    RETURNING name
"""


def remember_queues(db: Database, names: list[str]) -> None:
    """Make rows for queues that were not known yet."""
    if db.is_postgres:
        db.execute(REMEMBER_QUEUES, {"names": names})
        return
    rows = [Queue(name=name) for name in names]
    Queue.objects.using(db.alias).bulk_create(rows, ignore_conflicts=True)
