"""Stats: jobs by queue and status, throughput, dead jobs and workers. Reads only.

Called by `jobqueue stats`, possibly every few seconds on a table with millions of ended
jobs: pending, scheduled and running jobs are counted through their partial indexes, so
the cost depends on the live jobs. Blocked and ended jobs have no such index: they are
counted in a small table and estimated by PostgreSQL's planner in a large one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.db.models import Count, Max, Min, Q, QuerySet

from .models import Attempt, DeadJob, Job, Queue, WorkerHeartbeat
from .options import Options, get_options
from .states import AttemptOutcome, JobStatus
from .storage.database import Database, get_database

# A table with fewer rows by the planner's estimate is counted exactly, in one pass.
SMALL_TABLE_ROWS = 100_000
# Attempts are found by their growing primary key; only the last ones are read.
MAX_ATTEMPTS_READ = 20_000

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
    """One queue. A count is None where counting a large table costs too much."""

    name: str
    counts: dict[str, int | None]
    # When the job that has waited longest could have started.
    waiting_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What ended within one minute. `succeeded` is None if RETENTION keeps nothing."""

    start: datetime
    succeeded: int | None
    # Failed attempts; some are retried.
    failed: int
    # Jobs that died.
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
    # Names of the columns of `minutes` that are lower bounds.
    at_least: list[str]
    dead: int
    workers_alive: int
    workers_stale: int


@dataclass(slots=True)
class _Counted:
    """The counts by queue and status."""

    # The counted statuses; the others are None in each queue.
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
    """Read the stats; with `is_exact` count every row, even if that is slow."""
    db = db or get_database()
    options = get_options()
    now = db.read_clock(now)
    is_small = (
        is_exact or _estimate_rows(Job.objects.using(db.alias)) < SMALL_TABLE_ROWS
    )
    estimated = [] if is_small else [s for s in JobStatus.values if s not in _INDEXED]
    counted = _count_all(db, now) if is_small else _count_indexed(db, now, estimated)
    # Empty queues are listed too.
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
    """Count the statuses that have a partial index; estimate the others."""
    counted = _Counted(_INDEXED)
    rows = Job.objects.using(db.alias)
    for status in _INDEXED:
        of_status = rows.filter(status=status)
        if status == JobStatus.RUNNING:
            # Only running jobs have an owner, and the owner is indexed.
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
    # A scheduled job that is due waits too, until a worker promotes it.
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
    # The estimate is at least 1, even if no row has the status.
    return expected if expected > 1 else 0


def _read_minutes(
    db: Database, options: Options, number: int, now: datetime
) -> tuple[list[Minute], list[str]]:
    """Return the last minutes, and the names of columns that are lower bounds."""
    starts = [now - _MINUTE * (n + 1) for n in range(number)]
    succeeded, is_cut = _count_succeeded(db, options, starts)
    last = Attempt.objects.using(db.alias).aggregate(last=Max("pk"))["last"] or 0
    failed = _count_by_minute(
        Attempt.objects.using(db.alias).filter(
            pk__gt=last - MAX_ATTEMPTS_READ, outcome__in=_FAILURES
        ),
        "finished_at",
        starts,
    )
    died = _count_by_minute(DeadJob.objects.using(db.alias), "died_at", starts)
    minutes = [
        Minute(start=start, succeeded=good, failed=bad, died=dead)
        for start, good, bad, dead in zip(starts, succeeded, failed, died, strict=True)
    ]
    flags = {"succeeded": is_cut, "failed": sum(failed) >= MAX_ATTEMPTS_READ}
    return minutes, [name for name, is_set in flags.items() if is_set]


def _count_succeeded(
    db: Database, options: Options, starts: Sequence[datetime]
) -> tuple[list[int] | list[None], bool]:
    """Count the last successes through the prune index; say if the count is cut.

    If RETENTION keeps nothing, nothing is known; if it keeps a number, at most that
    many are counted.
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
