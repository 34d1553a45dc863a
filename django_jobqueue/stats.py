"""Stats: how many jobs wait where, how fast they end, who works. Reads only.

Called by `jobqueue stats`, and made to be called every few seconds while millions of
ended jobs lie in the table: what waits or runs is counted through its partial index, so
the cost follows the live jobs. No index knows the rest (blocked, ended): it is counted
while the table is small, and PostgreSQL's planner estimates it when it is large.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.db.models import Count, Max, Min, Q, QuerySet

from .lifecycle.database import Database, get_database
from .models import Attempt, DeadJob, Job, Queue, WorkerHeartbeat
from .options import Options, get_options
from .states import AttemptOutcome, JobStatus

# A table that the planner believes to be smaller is counted exactly, in one pass.
SMALL = 100_000
# Attempts are found by their growing primary key; so many of the last ones are read.
NEWEST_ATTEMPTS = 20_000

_MINUTE = timedelta(minutes=1)
_INDEXED = (JobStatus.PENDING, JobStatus.SCHEDULED, JobStatus.RUNNING)
_FAILURES = (
    AttemptOutcome.FAILED,
    AttemptOutcome.TIMEOUT,
    AttemptOutcome.DISCARDED,
    AttemptOutcome.CRASHED,
    AttemptOutcome.LOST,
)


@dataclass(slots=True, kw_only=True)
class QueueStats:
    """One queue. `None` instead of a number: too costly to count in a large table."""

    name: str
    counts: dict[str, int | None]
    # When the job that has waited longest could have started.
    waiting_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What ended within one minute. `succeeded` is None where nothing is kept of it."""

    start: datetime
    succeeded: int | None
    # Attempts that failed; some were tried again.
    failed: int
    # Jobs that went to the dead letters.
    died: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The state of all queues at one moment."""

    at: datetime
    queues: list[QueueStats]
    totals: dict[str, int]
    # Statuses whose totals are the planner's estimate.
    estimated: list[str]
    # The last minutes, the newest first.
    minutes: list[Minute]
    # Names of the columns of `minutes` that may be higher in truth.
    at_least: list[str]
    dead: int
    workers_alive: int
    workers_stale: int


@dataclass(slots=True)
class _Counted:
    """What is counted, by queue and status."""

    # Statuses that are counted; the others are None in each queue.
    statuses: Sequence[str]
    queues: dict[str, QueueStats] = field(default_factory=dict)
    totals: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(JobStatus.values, 0)
    )

    def add_queue(self, name: str) -> QueueStats:
        if name not in self.queues:
            counts = {s: 0 if s in self.statuses else None for s in JobStatus.values}
            self.queues[name] = QueueStats(name=name, counts=counts)
        return self.queues[name]


def read_stats(
    db: Database | None = None,
    *,
    minutes: int = 5,
    is_exact: bool = False,
    now: datetime | None = None,
) -> Stats:
    """Read the stats; `is_exact` counts everything, however long it takes."""
    db = db or get_database()
    options = get_options()
    now = db.read_clock(now)
    is_small = is_exact or _estimate_rows(Job.objects.using(db.alias)) < SMALL
    estimated = [] if is_small else [s for s in JobStatus.values if s not in _INDEXED]
    counted = _count_all(db, now) if is_small else _count_indexed(db, now, estimated)
    # One that is empty is a piece of news too.
    for name in Queue.objects.using(db.alias).values_list("name", flat=True):
        counted.add_queue(name)
    throughput, at_least = _read_minutes(db, options, minutes, now)
    workers = WorkerHeartbeat.objects.using(db.alias)
    alive = workers.filter(last_seen_at__gte=now - options.heartbeat_ttl).count()
    return Stats(
        at=now,
        queues=sorted(counted.queues.values(), key=lambda queue: queue.name),
        totals=counted.totals,
        estimated=estimated,
        minutes=throughput,
        at_least=at_least,
        dead=DeadJob.objects.using(db.alias).count(),
        workers_alive=alive,
        workers_stale=workers.count() - alive,
    )


def _count_all(db: Database, now: datetime) -> _Counted:
    """Count every row once."""
    counted = _Counted(JobStatus.values)
    rows = Job.objects.using(db.alias)
    for status, queue, *found in _count_by_queue(rows, "status"):
        _add(counted, queue, status, *found, now=now)
    return counted


def _count_indexed(db: Database, now: datetime, estimated: Sequence[str]) -> _Counted:
    """Count what has a partial index, status by status; estimate the others."""
    counted = _Counted(_INDEXED)
    rows = Job.objects.using(db.alias)
    for status in _INDEXED:
        of_status = rows.filter(status=status)
        if status == JobStatus.RUNNING:
            # Only running jobs have an owner, and the index is on that.
            of_status = of_status.filter(worker_id__isnull=False)
        for queue, *found in _count_by_queue(of_status):
            _add(counted, queue, status, *found, now=now)
    for other in estimated:
        counted.totals[other] = _estimate_rows(rows.filter(status=other))
    return counted


def _count_by_queue(rows: QuerySet[Job], *keys: str) -> QuerySet[Job, tuple[Any, ...]]:
    groups = rows.order_by().values_list(*keys, "queue")
    return groups.annotate(Count("pk"), Min("run_at"))


def _add(
    counted: _Counted,
    name: str,
    status: str,
    number: int,
    run_at: datetime,
    *,
    now: datetime,
) -> None:
    counted.totals[status] += number
    queue = counted.add_queue(name)
    queue.counts[status] = number
    # A scheduled job that is due waits as well: for a worker to promote it.
    is_waiting = status == JobStatus.PENDING or (
        status == JobStatus.SCHEDULED and run_at <= now
    )
    if is_waiting and (queue.waiting_since is None or run_at < queue.waiting_since):
        queue.waiting_since = run_at


def _estimate_rows(rows: QuerySet[Any]) -> int:
    """Return how many rows PostgreSQL's planner expects; 0 on other databases."""
    if connections[rows.db].vendor != "postgresql":
        return 0
    [plan] = json.loads(rows.order_by().values("pk").explain(format="json"))
    expected = int(plan["Plan"]["Plan Rows"])
    # It never expects less than one row, not even of a status that nothing has.
    return expected if expected > 1 else 0


def _read_minutes(
    db: Database, options: Options, number: int, now: datetime
) -> tuple[list[Minute], list[str]]:
    """Count what ended in each of the last minutes, and say which are lower bounds."""
    starts = [now - _MINUTE * (n + 1) for n in range(number)]
    succeeded, is_cut = _count_succeeded(db, options, starts)
    last = Attempt.objects.using(db.alias).aggregate(last=Max("pk"))["last"] or 0
    failed = _count_by_minute(
        Attempt.objects.using(db.alias).filter(
            pk__gt=last - NEWEST_ATTEMPTS, outcome__in=_FAILURES
        ),
        "finished_at",
        starts,
    )
    died = _count_by_minute(DeadJob.objects.using(db.alias), "died_at", starts)
    minutes = [
        Minute(start=start, succeeded=good, failed=bad, died=dead)
        for start, good, bad, dead in zip(starts, succeeded, failed, died, strict=True)
    ]
    flags = {"succeeded": is_cut, "failed": sum(failed) >= NEWEST_ATTEMPTS}
    return minutes, [name for name, is_set in flags.items() if is_set]


def _count_succeeded(
    db: Database, options: Options, starts: Sequence[datetime]
) -> tuple[list[int] | list[None], bool]:
    """Find the last successes at the end of the prune index, where they all lie.

    Without retention nothing is known of them; under a count, only of that many.
    """
    retention = options.retention["succeeded"]
    if retention.keep is None and not retention.age:
        return [None] * len(starts), False
    delay = timedelta() if retention.age is None else retention.age
    rows = Job.objects.using(db.alias).filter(
        status=JobStatus.SUCCEEDED, prune_at__gte=starts[-1] + delay
    )
    counts = _count_by_minute(rows, "finished_at", starts)
    is_cut = retention.keep is not None and sum(counts) >= retention.keep
    return counts, is_cut


def _count_by_minute(
    rows: QuerySet[Any], column: str, starts: Sequence[datetime]
) -> list[int]:
    """Count rows by minute in one query, whatever the database."""
    counts = {
        f"minute_{n}": Count(
            "pk",
            filter=Q(**{f"{column}__gte": start, f"{column}__lt": start + _MINUTE}),
        )
        for n, start in enumerate(starts)
    }
    found = rows.filter(**{f"{column}__gte": starts[-1]}).aggregate(**counts)
    return [found[name] for name in counts]
