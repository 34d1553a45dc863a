"""Maintenance: rescues the jobs of dead workers and prunes ended ones.

Every worker does it; rows are taken with SKIP LOCKED, so that they do not get in each
other's way and no leader is needed.
"""

from __future__ import annotations

import random
import time
from uuid import UUID

from django.db import connections

from ..lifecycle.database import Database
from ..lifecycle.notify import notify_due, notify_pending
from ..lifecycle.prune import has_due_jobs, prune_jobs
from ..lifecycle.rescue import forget_silent_workers, rescue_jobs
from ..lifecycle.rescued import LIMIT
from ..options import Options
from ..registry import all_handlers
from ..signals import report_rescued
from .claimer import Claimer
from .heartbeat import Heartbeat
from .link import Link
from .loop import Loop

# Seconds between two looks for what is rare: jobs without any heartbeat, old rows.
# With up to two fifths more.
RARE = 60.0
# Between two batches of a long prune: others want the disk too.
PAUSE = 0.05
# The shortest wait after a loss that was not the first.
SOONEST = 2.0


class Maintenance:
    """The loop of what has to be done now and then."""

    def __init__(
        self,
        heartbeat: Heartbeat | Link,
        claimer: Claimer,
        *,
        worker_id: UUID,
        options: Options,
    ) -> None:
        self.loop = Loop("maintenance", self.step, alias=options.database)
        self._heartbeat = heartbeat
        self._claimer = claimer
        self._worker_id = worker_id
        self._options = options
        self._next_rare = time.monotonic() + RARE * random.random()
        self._is_pruning = False
        self._run_once = [
            name
            for name, handler in all_handlers().items()
            if (handler.max_attempts or options.max_attempts) == 1
        ]

    def step(self, db: Database) -> float:
        now = time.monotonic()
        is_rare = now >= self._next_rare
        if is_rare:
            self._next_rare = now + RARE * (1.0 + random.random() * 0.4)
            self._is_pruning = has_due_jobs(db)
        # Only one whose own heart is steady judges others.
        reply = self._heartbeat.reply
        if is_rare and reply.is_someone_silent:
            forget_silent_workers(db)
        is_called_for = reply.is_steady and (reply.is_someone_silent or is_rare)
        if is_called_for and self._rescue(db) == LIMIT:
            return 0.0
        if self._is_pruning:
            # A batch is of one status: a small one of the first is not the end.
            self._is_pruning = prune_jobs(db) > 0
            if self._is_pruning:
                return PAUSE
            # Django's connection of this thread is needed once a minute only.
            connections[db.alias].close()
        delay = self._options.heartbeat_interval.total_seconds()
        return delay * (0.8 + random.random() * 0.2)

    def _rescue(self, db: Database) -> int:
        rescued = rescue_jobs(db, options=self._options, run_once=self._run_once)
        ranks: dict[str, int] = {}
        for job in rescued:
            report_rescued(job, worker_id=self._worker_id)
            if job.rank is not None:
                ranks[job.queue] = min(job.rank, ranks.get(job.queue, job.rank))
        notify_pending(db, ranks)
        self._claimer.tell_pending(ranks)
        if any(job.rank is None and not job.is_dead for job in rescued):
            # They wait a moment after a second loss, and nobody shall oversleep it.
            self._claimer.tell_due(SOONEST)
            notify_due(db, SOONEST)
        return len(rescued)
