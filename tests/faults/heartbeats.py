"""Wait for the heartbeats of real workers."""

from __future__ import annotations

from typing import Any

from django_jobqueue.models import WorkerHeartbeat
from tests.waiting import wait_until


def wait_for_heartbeats(count: int, **conditions: Any) -> None:
    """Wait until a worker that meets the conditions has beaten `count` times more."""
    rows = WorkerHeartbeat.objects.filter(**conditions).order_by("-last_seen_at")
    for _ in range(count):
        last = rows.values_list("last_seen_at", flat=True)[0]
        wait_until(rows.filter(last_seen_at__gt=last).exists)
