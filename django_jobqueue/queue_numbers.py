"""Queue numbers: every queue with its waiting, running and dead jobs. Reads only.

Called by the admin's page of queues. The names come from the jobs and the workers as
well as from the Queue table: a queue that no worker serves has no row there. Counts are
capped, so the cost does not grow with the backlog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from .models import Queue, WorkerHeartbeat
from .options import get_options
from .states import JobStatus
from .storage.database import Database, get_database
from .storage.queue_counts import QueueCount, count_by_queue

MAX_PENDING_PER_QUEUE = 10_000
# Of each other status, over all queues.
MAX_ROWS_PER_STATUS = 100_000


@dataclass(slots=True, kw_only=True)
class QueueNumbers:
    """One queue. A count named in `at_least` may be higher in truth."""

    name: str
    pending: int = 0
    scheduled: int = 0
    running: int = 0
    dead: int = 0
    at_least: frozenset[str] = frozenset()
    # When the job that has waited longest could have started.
    waiting_since: datetime | None = None
    # Live workers that serve it.
    workers: int = 0
    # None: the Queue table does not know it.
    first_seen_at: datetime | None = None


def read_queue_numbers(
    db: Database | None = None, *, now: datetime | None = None
) -> list[QueueNumbers]:
    """Return every queue that has jobs, a live worker or a Queue row, by name."""
    db = db or get_database()
    now = db.read_clock(now)
    remembered = Queue.objects.using(db.alias).values_list("name", "first_seen_at")
    found = {
        name: QueueNumbers(name=name, first_seen_at=first_seen_at)
        for name, first_seen_at in remembered
    }
    counts = count_by_queue(
        db, limit=MAX_PENDING_PER_QUEUE, total_limit=MAX_ROWS_PER_STATUS
    )
    for count in counts:
        queue = found.setdefault(count.queue, QueueNumbers(name=count.queue))
        _add_count(queue, count, now)
    capped = _find_capped(counts)
    workers = _read_live_workers(db, now)
    for name in _list_served(workers):
        found.setdefault(name, QueueNumbers(name=name))
    for queue in found.values():
        is_capped = queue.pending >= MAX_PENDING_PER_QUEUE
        queue.at_least = capped | {JobStatus.PENDING} if is_capped else capped
        queue.workers = sum(worker.serves(queue.name) for worker in workers)
    return sorted(found.values(), key=lambda queue: queue.name)


def _add_count(queue: QueueNumbers, count: QueueCount, now: datetime) -> None:
    setattr(queue, count.status, count.number)
    # A scheduled job that is due waits too, until a worker promotes it.
    is_waiting = count.status == JobStatus.PENDING or (
        count.status == JobStatus.SCHEDULED and count.run_at <= now
    )
    if is_waiting:
        queue.waiting_since = min(queue.waiting_since or now, count.run_at)


def _find_capped(counts: Sequence[QueueCount]) -> frozenset[str]:
    """Return the statuses of which not all rows were counted."""
    totals: Counter[str] = Counter()
    for count in counts:
        if count.status != JobStatus.PENDING:
            totals[count.status] += count.number
    return frozenset(s for s in totals if totals[s] >= MAX_ROWS_PER_STATUS)


def _read_live_workers(db: Database, now: datetime) -> list[WorkerHeartbeat]:
    limit = now - get_options().heartbeat_ttl
    rows = WorkerHeartbeat.objects.using(db.alias).filter(last_seen_at__gte=limit)
    return list(rows.only("queues"))


def _list_served(workers: Sequence[WorkerHeartbeat]) -> Iterator[str]:
    """Yield the queues that workers name; one that serves all queues names none."""
    for worker in workers:
        weights = worker.queues if isinstance(worker.queues, dict) else {}
        yield from (name for name, weight in weights.items() if weight)
