"""The heartbeat row of a worker: registered before its first claim, removed last.

Called by worker/heartbeat.py, and by a supervisor for all its workers at once. A beat
after a gap longer than the TTL sets `beating_since` anew: such a worker leaves others
alone until it has been steady for a TTL.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    # Whether some worker is silent that nobody beat for just now.
    is_someone_silent: bool


# Those of this call are not looked for among the silent: a statement does not see what
# it writes. ORDER BY: two such statements must not wait for each other in a circle.
BEAT_WORKERS = """
    WITH clock AS MATERIALIZED (
        SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    ),
    silent AS MATERIALIZED (
        SELECT EXISTS (
            SELECT 1
            FROM jobqueue_workerheartbeat AS other
            WHERE
                other.id <> ALL(%(ids)s::uuid[])
                AND other.last_seen_at < (SELECT now FROM clock) - %(ttl)s::interval
        ) AS is_someone
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
        beat.id,
        beat.host,
        beat.pid,
        beat.name,
        beat.queues::jsonb,
        beat.concurrency,
        beat.version,
        clock.now,
        clock.now,
        clock.now,
        beat.state,
        beat.processed,
        beat.failed,
        beat.running,
        beat.memory
    FROM unnest(
        %(ids)s::uuid[],
        %(hosts)s::text[],
        %(pids)s::integer[],
        %(names)s::text[],
        %(queues)s::text[],
        %(concurrencies)s::integer[],
        %(versions)s::text[],
        %(states)s::text[],
        %(processed)s::bigint[],
        %(failed)s::bigint[],
        %(running)s::integer[],
        %(memories)s::bigint[]
    ) AS beat (
        id,
        host,
        pid,
        name,
        queues,
        concurrency,
        version,
        state,
        processed,
        failed,
        running,
        memory
    )
    CROSS JOIN clock
    ORDER BY beat.id
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
        worker.id,
        worker.beating_since < worker.last_seen_at - %(ttl)s::interval,
        (SELECT is_someone FROM silent)
"""


def beat_workers(
    db: Database,
    beats: Sequence[tuple[WorkerIdentity, Pulse]],
    *,
    ttl: timedelta,
    now: datetime | None = None,
) -> dict[UUID, BeatReply]:
    """Write the rows of these workers at once, making those that are missing."""
    if not db.is_postgres:
        return _beat_portable(db, beats, ttl=ttl, now=now)
    workers = [worker for worker, _ in beats]
    pulses = [pulse for _, pulse in beats]
    parameters: dict[str, Any] = {
        "ids": [worker.id for worker in workers],
        "hosts": [worker.host for worker in workers],
        "pids": [worker.pid for worker in workers],
        "names": [worker.name for worker in workers],
        "queues": [json.dumps(worker.queues) for worker in workers],
        "concurrencies": [worker.concurrency for worker in workers],
        "versions": [worker.version for worker in workers],
        "states": [pulse.state for pulse in pulses],
        "processed": [pulse.processed for pulse in pulses],
        "failed": [pulse.failed for pulse in pulses],
        "running": [pulse.running for pulse in pulses],
        "memories": [pulse.memory for pulse in pulses],
        "ttl": ttl,
        "now": now,
    }
    rows = db.execute(BEAT_WORKERS, parameters, is_rare=True)
    return {id: BeatReply(*reply) for id, *reply in rows}


def beat(
    db: Database,
    worker: WorkerIdentity,
    pulse: Pulse,
    *,
    ttl: timedelta,
    now: datetime | None = None,
) -> BeatReply:
    """Write the row of one worker."""
    return beat_workers(db, [(worker, pulse)], ttl=ttl, now=now)[worker.id]


def _beat_portable(
    db: Database,
    beats: Sequence[tuple[WorkerIdentity, Pulse]],
    *,
    ttl: timedelta,
    now: datetime | None,
) -> dict[UUID, BeatReply]:
    beats = sorted(beats, key=lambda beat: beat[0].id)
    with db.atomic():
        now = db.read_clock(now)
        since = {
            worker.id: _write_beat(db, worker, pulse, ttl=ttl, now=now)
            for worker, pulse in beats
        }
    rows = WorkerHeartbeat.objects.using(db.alias).exclude(pk__in=since)
    is_someone_silent = rows.filter(last_seen_at__lt=now - ttl).exists()
    return {
        id: BeatReply(moment < now - ttl, is_someone_silent)
        for id, moment in since.items()
    }


def _write_beat(
    db: Database,
    worker: WorkerIdentity,
    pulse: Pulse,
    *,
    ttl: timedelta,
    now: datetime,
) -> datetime:
    """Write one row and return since when it is beating."""
    rows = WorkerHeartbeat.objects.using(db.alias)
    row = rows.filter(pk=worker.id).first()
    if row is None:
        rows.create(
            **asdict(worker),
            **asdict(pulse),
            started_at=now,
            last_seen_at=now,
            beating_since=now,
        )
        return now
    since = now if row.last_seen_at < now - ttl else row.beating_since
    rows.filter(pk=worker.id).update(
        **asdict(pulse), last_seen_at=now, beating_since=since
    )
    return since


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
