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

from django.db import connections
from django.db.models import QuerySet

from ..database_errors import is_lock_wait
from ..models import Job, WorkerHeartbeat
from .database import Database
from .sql_parts import CLOCK, LIMIT_LOCK_WAIT


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
class BeatValues:
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
    # Whether a worker is silent that is not one of this call.
    is_someone_silent: bool


# Those of this call are not looked for among the silent: a statement does not see what
# it writes. ORDER BY: two such statements must not wait for each other in a circle.
BEAT_WORKERS = f"""
    WITH {CLOCK},
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
                OR worker.beating_since > EXCLUDED.last_seen_at
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
    beats: Sequence[tuple[WorkerIdentity, BeatValues]],
    *,
    ttl: timedelta,
    now: datetime | None = None,
) -> dict[UUID, BeatReply]:
    """Write the rows of these workers at once, making those that are missing.

    A row that another session holds is left out of the replies, unless it is that of
    all of them: then the lock wait is raised.
    """
    if not db.is_postgres:
        return _beat_portable(db, beats, ttl=ttl, now=now)
    try:
        return _beat_together(db, beats, ttl=ttl, now=now)
    except Exception as error:
        if len(beats) == 1 or not is_lock_wait(error):
            raise
        replies = _beat_each(db, beats, ttl=ttl, now=now)
        if not replies:
            raise
        return replies


def _beat_each(
    db: Database,
    beats: Sequence[tuple[WorkerIdentity, BeatValues]],
    *,
    ttl: timedelta,
    now: datetime | None,
) -> dict[UUID, BeatReply]:
    """Beat for one worker after the other, passing over rows that others hold."""
    replies: dict[UUID, BeatReply] = {}
    for each in beats:
        try:
            with db.transaction():
                db.execute(LIMIT_LOCK_WAIT, {}, is_rare=True)
                replies |= _beat_together(db, [each], ttl=ttl, now=now)
        except Exception as error:
            if not is_lock_wait(error):
                raise
    return replies


def _beat_together(
    db: Database,
    beats: Sequence[tuple[WorkerIdentity, BeatValues]],
    *,
    ttl: timedelta,
    now: datetime | None,
) -> dict[UUID, BeatReply]:
    workers = [worker for worker, _ in beats]
    all_beat_values = [beat_values for _, beat_values in beats]
    parameters: dict[str, Any] = {
        "ids": [worker.id for worker in workers],
        "hosts": [worker.host for worker in workers],
        "pids": [worker.pid for worker in workers],
        "names": [worker.name for worker in workers],
        "queues": [json.dumps(worker.queues) for worker in workers],
        "concurrencies": [worker.concurrency for worker in workers],
        "versions": [worker.version for worker in workers],
        "states": [beat_values.state for beat_values in all_beat_values],
        "processed": [beat_values.processed for beat_values in all_beat_values],
        "failed": [beat_values.failed for beat_values in all_beat_values],
        "running": [beat_values.running for beat_values in all_beat_values],
        "memories": [beat_values.memory for beat_values in all_beat_values],
        "ttl": ttl,
        "now": now,
    }
    rows = db.execute(BEAT_WORKERS, parameters, is_rare=True)
    return {id: BeatReply(*reply) for id, *reply in rows}


def beat(
    db: Database,
    worker: WorkerIdentity,
    beat_values: BeatValues,
    *,
    ttl: timedelta,
    now: datetime | None = None,
) -> BeatReply:
    """Write the row of one worker."""
    return beat_workers(db, [(worker, beat_values)], ttl=ttl, now=now)[worker.id]


def _beat_portable(
    db: Database,
    beats: Sequence[tuple[WorkerIdentity, BeatValues]],
    *,
    ttl: timedelta,
    now: datetime | None,
) -> dict[UUID, BeatReply]:
    beats = sorted(beats, key=lambda beat: beat[0].id)
    with db.atomic():
        now = db.read_clock(now)
        beats = _leave_out_held(db, beats)
        since = {
            worker.id: _write_beat(db, worker, beat_values, ttl=ttl, now=now)
            for worker, beat_values in beats
        }
    rows = WorkerHeartbeat.objects.using(db.alias).exclude(pk__in=since)
    is_someone_silent = rows.filter(last_seen_at__lt=now - ttl).exists()
    return {
        id: BeatReply(moment < now - ttl, is_someone_silent)
        for id, moment in since.items()
    }


def _leave_out_held(
    db: Database, beats: Sequence[tuple[WorkerIdentity, BeatValues]]
) -> Sequence[tuple[WorkerIdentity, BeatValues]]:
    """Lock the rows and return the beats for those that no other session holds; all
    of them, if that leaves none: then they are waited for."""
    features = connections[db.alias].features
    if not features.has_select_for_update_skip_locked:
        return beats
    rows = WorkerHeartbeat.objects.using(db.alias).filter(
        pk__in=[worker.id for worker, _ in beats]
    )
    free = set(db.lock_rows(rows.order_by("pk")).values_list("pk", flat=True))
    held = set(rows.values_list("pk", flat=True)) - free
    return [beat for beat in beats if beat[0].id not in held] or beats


def _write_beat(
    db: Database,
    worker: WorkerIdentity,
    beat_values: BeatValues,
    *,
    ttl: timedelta,
    now: datetime,
) -> datetime:
    """Write one row and return since when it is beating."""
    rows = WorkerHeartbeat.objects.using(db.alias)
    own = rows.filter(pk=worker.id)
    if not own.exists():
        rows.create(
            **asdict(worker),
            **asdict(beat_values),
            started_at=now,
            last_seen_at=now,
            beating_since=now,
        )
        return now
    since = _find_since(own, ttl=ttl, now=now)
    own.update(**asdict(beat_values), last_seen_at=now, beating_since=since)
    return since


def _find_since(
    own: QuerySet[WorkerHeartbeat], *, ttl: timedelta, now: datetime
) -> datetime:
    """Return since when a row is beating without a gap, up to this beat.

    A time to come counts as a gap: the clock was set back, or SQL wrote it.
    """
    try:
        [(seen, since)] = own.values_list("last_seen_at", "beating_since")
        return now if seen < now - ttl or since > now else since
    except (TypeError, ValueError):
        # SQLite: no time is stored there.
        return now


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


def deregister(db: Database, worker_id: UUID) -> None:
    """Delete the row of a worker that exits cleanly, as its last statement.

    The row stays while a job has its id: rescue needs it to see that the owner is gone.
    """
    if db.is_postgres:
        db.execute(DEREGISTER, {"worker_id": worker_id})
        return
    if not Job.objects.using(db.alias).filter(worker_id=worker_id).exists():
        WorkerHeartbeat.objects.using(db.alias).filter(pk=worker_id).delete()
