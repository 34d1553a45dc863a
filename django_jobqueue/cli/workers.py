"""`jobqueue workers`: the workers with a heartbeat row, stale ones marked."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from ..models import WorkerHeartbeat
from ..options import get_options
from ..storage.database import get_database
from .answers import Answer
from .tables import format_age, format_bytes, format_table
from .terminal import Terminal

HELP = "List the workers. The exit code is 1 if none is alive."
KEYS = """\
workers: [{id, name, host, pid, queues: {name: weight} or {} for all, concurrency,
state, is_stale, running, processed, failed, memory (bytes), version, started_at,
last_seen_at, last_seen_seconds}]; alive, stale: numbers"""

_NONE_ALIVE = "No worker is alive. Start one with: manage.py runworker"
_COLUMNS = (
    "id",
    "name",
    "host",
    "pid",
    "queues",
    "concurrency",
    "state",
    "running",
    "processed",
    "failed",
    "memory",
    "version",
    "started_at",
    "last_seen_at",
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing: the sub-command has no flags."""


def run(flags: dict[str, Any], terminal: Terminal) -> Answer:
    """List all workers with a heartbeat row."""
    now = get_database().read_clock(None)
    workers = [
        _describe(worker, now)
        for worker in WorkerHeartbeat.objects.order_by("name", "host", "started_at")
    ]
    stale = sum(worker["is_stale"] for worker in workers)
    alive = len(workers) - stale
    return Answer(
        document={"workers": workers, "alive": alive, "stale": stale},
        text=_format(workers, terminal.style) if workers else "",
        problem="" if alive else _NONE_ALIVE,
    )


def _describe(worker: WorkerHeartbeat, now: datetime) -> dict[str, Any]:
    age = now - worker.last_seen_at
    return {
        **{name: getattr(worker, name) for name in _COLUMNS},
        "is_stale": age > get_options().heartbeat_ttl,
        "last_seen_seconds": age,
    }


def _format(workers: list[dict[str, Any]], style: Any) -> str:
    numbers = ["PID", "SLOTS", "SEEN", "RUNNING", "DONE", "FAILED", "MEMORY"]
    headers = ["NAME", "HOST", "PID", "STATE", "SEEN", "SLOTS", "RUNNING", "DONE"]
    headers += ["FAILED", "MEMORY", "QUEUES"]
    rows = [
        [
            worker["name"],
            worker["host"],
            str(worker["pid"]),
            "STALE" if worker["is_stale"] else worker["state"],
            format_age(worker["last_seen_seconds"]),
            worker["concurrency"],
            worker["running"],
            worker["processed"],
            worker["failed"],
            format_bytes(worker["memory"]),
            _format_queues(worker["queues"]),
        ]
        for worker in workers
    ]
    lines = format_table(headers, rows, right=numbers, style=style).split("\n")
    for number, worker in enumerate(workers, 1):
        if worker["is_stale"]:
            lines[number] = style.WARNING(lines[number])
    return "\n".join(lines)


def _format_queues(queues: dict[str, int]) -> str:
    return ",".join(WorkerHeartbeat(queues=queues).label_queues()) or "all"
