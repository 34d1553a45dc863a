"""Maintenance: rescues the jobs of dead workers and prunes ended ones.

Every worker runs it. Rows are taken with SKIP LOCKED: workers do not block each other,
and no leader is needed.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable
from uuid import UUID

from django.db import connections

from ..database_errors import is_cancelled_sql, is_database_trouble, is_lock_wait
from ..job_log import report_rescued, report_unreadable
from ..lifecycle.prune import has_due_jobs, prune_jobs
from ..lifecycle.rescue import MAX_RESCUED_JOBS, forget_silent_workers, rescue_jobs
from ..lifecycle.unreadable import (
    delete_unreadable_workers,
    list_maintenance_candidates,
    move_unreadable_jobs,
)
from ..log_events import Event
from ..options import Options
from ..signals import Send
from ..states import JobStatus
from ..storage.database import Database
from ..storage.notify import notify_due, notify_pending
from .claiming.claimer import Claimer
from .heartbeat import Heartbeat
from .loop import Loop
from .supervision.supervised_heartbeat import SupervisedHeartbeat

logger = logging.getLogger("django_jobqueue.worker")

# Between two checks for rare work: jobs without any heartbeat row, old rows. Up to two
# fifths more.
RARE_WORK_SECONDS = 60.0
# Between two batches of a long prune: other sessions need the disk too.
PRUNE_PAUSE_SECONDS = 0.05
# After this many checks in a row a locked row of a silent worker is logged.
LOCKED_CHECKS = 2
# The shortest wait after a loss that was not the first.
MIN_LOSS_DELAY_SECONDS = 2.0


class Maintenance:
    """The loop for periodic work."""

    def __init__(
        self,
        heartbeat: Heartbeat | SupervisedHeartbeat,
        claimer: Claimer,
        *,
        worker_id: UUID,
        options: Options,
        send: Send,
    ) -> None:
        self.loop = Loop("maintenance", self.step, alias=options.database)
        self._heartbeat = heartbeat
        self._claimer = claimer
        self._worker_id = worker_id
        self._options = options
        self._send = send
        self._next_rare = time.monotonic() + RARE_WORK_SECONDS * random.random()
        self._is_pruning = False
        # Ended jobs that this round of pruning could not delete.
        self._unpruned: set[UUID] = set()
        # Silent workers whose rows were locked at the last check → for how many checks.
        self._locked_rows: dict[UUID, int] = {}

    def step(self, db: Database) -> float:
        try:
            return self._step(db)
        except Exception as error:
            moved = move_unreadable_jobs(db, list_maintenance_candidates(db), error)
            is_trouble = is_database_trouble(error)
            if not moved and (is_trouble or not delete_unreadable_workers(db)):
                raise
            report_unreadable(moved, worker_id=self._worker_id, send=self._send)
            return 0.0

    def _step(self, db: Database) -> float:
        now = time.monotonic()
        is_rare = now >= self._next_rare
        if is_rare:
            self._next_rare = now + RARE_WORK_SECONDS * (1.0 + random.random() * 0.4)
            self._is_pruning = has_due_jobs(db)
            # Retried: what protected them may be gone.
            self._unpruned.clear()
        # Only a worker whose own heartbeat is steady judges others.
        reply = self._heartbeat.reply
        if is_rare and reply.is_someone_silent:
            forget_silent_workers(db)
        is_rescue_due = reply.is_steady and (reply.is_someone_silent or is_rare)
        refused = None
        if is_rescue_due:
            count, refused = self._rescue(db)
            if count == MAX_RESCUED_JOBS:
                return 0.0
        if self._is_pruning:
            # A batch has one status: a small one of the first status is not the last.
            self._is_pruning = self._prune(db) > 0
            if self._is_pruning:
                return PRUNE_PAUSE_SECONDS
            # Django's connection of this thread is needed once a minute only.
            connections[db.alias].close()
        if refused is not None:
            # One of the rows cannot be read or written: step() finds it. Raised after
            # pruning, which must go on whatever happens to that row.
            raise refused
        delay = self._options.heartbeat_interval.total_seconds()
        return delay * (0.8 + random.random() * 0.2)

    def _prune(self, db: Database) -> int:
        try:
            return prune_jobs(db, passed=self._unpruned)
        except Exception as error:
            if not (is_lock_wait(error) or is_cancelled_sql(error)):
                raise
            # Rows of the project may refer to a job and be locked: retried in a minute.
            text = "pruning waited for too long; trying again later"
            logger.warning(Event(text, worker_id=self._worker_id, error=error))
            return 0

    def _note_locked(self, workers: Iterable[UUID]) -> None:
        """Log once the silent workers whose jobs cannot be rescued.

        Not at the first check: another worker may be rescuing, or it beats again.
        """
        self._locked_rows = {id: self._locked_rows.get(id, 0) + 1 for id in workers}
        for id, checks in self._locked_rows.items():
            if checks == LOCKED_CHECKS:
                text = "another session holds the row of a silent worker; no rescue"
                logger.warning(
                    Event(text, silent_worker_id=id, worker_id=self._worker_id)
                )

    def _rescue(self, db: Database) -> tuple[int, Exception | None]:
        """Rescue jobs; return how many, and why one of them was refused."""
        report = rescue_jobs(db, options=self._options)
        self._note_locked(report.held)
        for job in report.jobs:
            report_rescued(job, worker_id=self._worker_id, send=self._send)
        notify_pending(db, report.pending)
        self._claimer.on_pending(report.pending)
        if any(job.status == JobStatus.SCHEDULED for job in report.jobs):
            # Wake up in time for the jobs that wait after a second loss.
            self._claimer.on_due_in(MIN_LOSS_DELAY_SECONDS)
            notify_due(db, MIN_LOSS_DELAY_SECONDS)
        # Rows that another session has locked are left for the next time.
        errors = [group.error for group in report.unwritten]
        refused = [error for error in errors if not is_lock_wait(error)]
        return len(report.jobs), refused[0] if refused else None
