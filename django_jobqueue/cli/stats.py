"""`jobqueue stats`: jobs by queue and status, throughput, dead jobs and workers."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.utils import timezone

from ..states import JobStatus
from ..stats import Stats, read_stats
from .answers import Answer
from .arguments import read_count
from .tables import format_age, format_table
from .terminal import Terminal

HELP = "Show jobs by queue and status, throughput, dead jobs and workers."
KEYS = """\
at; queues: [{name, scheduled, pending, running, blocked, succeeded, cancelled,
oldest_waiting_seconds}]; totals: {the six statuses}; estimated: statuses whose total
is the planner's estimate (their numbers by queue are null); minutes: [{start,
succeeded, failed, died}], newest first (succeeded is null where RETENTION keeps
nothing); at_least: names that may be higher; dead; workers: {alive, stale}"""

_ENDED = ("succeeded", "failed", "died")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--minutes",
        type=read_count(1, 60),
        default=5,
        metavar="N",
        help="How many of the last minutes to show (default 5).",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="Count every row, also in a large table, where this is slow.",
    )


def run(flags: dict[str, Any], terminal: Terminal) -> Answer:
    """Read the stats once and format them."""
    stats = read_stats(minutes=flags["minutes"], is_exact=flags["exact"])
    parts = [
        _format_queues(stats, terminal.style),
        _format_minutes(stats, terminal.style),
        f"Dead jobs: {stats.dead:,}",
        f"Workers: {stats.workers_alive} alive, {stats.workers_stale} stale",
    ]
    if not stats.workers_alive and stats.totals[JobStatus.PENDING]:
        parts[3] += ". Jobs wait: start a worker with manage.py runworker"
    text = f"{parts[0]}\n\n{parts[1]}\n\n{parts[2]}\n{parts[3]}"
    return Answer(document=_describe(stats), text=text)


def _describe(stats: Stats) -> dict[str, Any]:
    return {
        "at": stats.at,
        "queues": [
            {
                "name": queue.name,
                **queue.counts,
                "oldest_waiting_seconds": _find_wait(queue.waiting_since, stats),
            }
            for queue in stats.queues
        ],
        "totals": stats.totals,
        "estimated": stats.estimated,
        "minutes": [
            {"start": minute.start} | {name: getattr(minute, name) for name in _ENDED}
            for minute in stats.minutes
        ],
        "at_least": stats.at_least,
        "dead": stats.dead,
        "workers": {"alive": stats.workers_alive, "stale": stats.workers_stale},
    }


def _find_wait(since: Any, stats: Stats) -> timedelta | None:
    return None if since is None else max(timedelta(), stats.at - since)


def _format_queues(stats: Stats, style: Any) -> str:
    headers = ["QUEUE", *(status.upper() for status in JobStatus.values), "OLDEST"]
    rows = [
        [
            queue.name,
            *(queue.counts[status] for status in JobStatus.values),
            format_age(_find_wait(queue.waiting_since, stats)),
        ]
        for queue in stats.queues
    ]
    totals = [
        f"~{stats.totals[status]:,}" if status in stats.estimated else number
        for status, number in stats.totals.items()
    ]
    waits = [queue.waiting_since for queue in stats.queues if queue.waiting_since]
    oldest = format_age(_find_wait(min(waits, default=None), stats))
    table = format_table(
        headers, [*rows, ["(all)", *totals, oldest]], right=headers[1:], style=style
    )
    if not stats.estimated:
        return table
    return f"{table}\n~ is PostgreSQL's estimate; --exact counts."


def _format_minutes(stats: Stats, style: Any) -> str:
    headers = ["MINUTE FROM", *(name.upper() for name in _ENDED)]
    rows = [
        [
            f"{timezone.localtime(minute.start):%H:%M:%S}",
            *(getattr(minute, name) for name in _ENDED),
        ]
        for minute in stats.minutes
    ]
    means = [_format_mean(stats, name) for name in _ENDED]
    return format_table(
        headers, [*rows, ["(a minute)", *means]], right=headers[1:], style=style
    )


def _format_mean(stats: Stats, name: str) -> str | None:
    numbers = [getattr(minute, name) for minute in stats.minutes]
    if None in numbers:
        return None
    sign = "≥ " if name in stats.at_least else ""
    return f"{sign}{sum(numbers) / len(numbers):,.1f}"
