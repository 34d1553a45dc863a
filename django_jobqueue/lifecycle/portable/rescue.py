"""Rescue with the ORM: which workers are gone, and the lock on their heartbeat rows.

Called by lifecycle/rescue.py on databases other than PostgreSQL.
"""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connections
from django.db.models import Q

from ...models import Job, WorkerHeartbeat
from ...storage.database import Database

# On SQLite one long transaction can keep a live process from beating. A process of this
# host that exists is spared for so many TTLs.
SPARED_TTLS = 20


def lock_if_gone(
    db: Database, worker_id: UUID, *, ttl: timedelta, now: datetime | None
) -> bool:
    """Lock the heartbeat row; False if the worker beats again or is being rescued."""
    rows = WorkerHeartbeat.objects.using(db.alias).filter(pk=worker_id)
    silent = rows.filter(last_seen_at__lt=db.read_clock(now) - ttl)
    return bool(db.lock_rows(silent)) or not rows.exists()


def find_silent_workers(
    db: Database, *, ttl: timedelta, now: datetime | None
) -> list[UUID]:
    """Return workers silent for longer than the TTL, and owners without a row."""
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
    """Tell whether a silent worker on SQLite may live: another writer may block it."""
    if connections[db.alias].vendor != "sqlite":
        return False
    if (
        worker.host != socket.gethostname()
        or worker.last_seen_at < now - SPARED_TTLS * ttl
    ):
        return False
    try:
        os.kill(worker.pid, 0)
    except (ProcessLookupError, OverflowError, TypeError, ValueError):
        return False
    except PermissionError:
        pass
    return True


def forget_silent_workers(
    db: Database, *, keep: timedelta, now: datetime | None
) -> int:
    """Delete the rows of workers that are silent for `keep` and own no job."""
    owners = Job.objects.using(db.alias).filter(worker_id__isnull=False)
    silent = WorkerHeartbeat.objects.using(db.alias).filter(
        Q(last_seen_at__lt=db.read_clock(now) - keep),
        ~Q(pk__in=owners.values("worker_id")),
    )
    return silent.delete()[0]
