"""Finisher: writes the ends of attempts, batched as they come, and tells of them.

While one batch is on its way to the database the next one gathers, so that a busy
worker writes hundreds at a time and an idle one at once.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

from ..lifecycle.claim import Claim
from ..lifecycle.database import Database
from ..lifecycle.endings import Ending
from ..lifecycle.finish import FinishReport, finish_attempts
from ..lifecycle.notify import notify_pending
from ..lifecycle.progress import write_progress
from ..options import Options
from ..outcomes import Died, GivenBack, Retried
from ..signals import JobLog
from .held import HeldJobs
from .loop import Loop

BATCH = 500


class Finisher:
    """The inbox of endings and the loop that empties it."""

    def __init__(
        self,
        held: HeldJobs,
        log: JobLog,
        *,
        worker_id: UUID,
        options: Options,
        on_due: Callable[[float], None],
    ) -> None:
        self.loop = Loop("finish", self.step, alias=options.database)
        self.processed = 0
        self.failed = 0
        self._held = held
        self._log = log
        self._worker_id = worker_id
        self._options = options
        # Told of retries, so that the claim loop looks in time.
        self._on_due = on_due
        self._inbox: queue.SimpleQueue[Ending | None] = queue.SimpleQueue()
        # Endings taken from the inbox and not written yet; kept over database trouble.
        self._batch: list[Ending] = []
        self._progress: dict[Claim, dict[str, Any]] = {}
        self._progress_lock = threading.Lock()

    def put(self, ending: Ending) -> None:
        """Hand over an ending, from any thread.

        Of two endings of one attempt (a job that ends while the shutdown gives it back)
        the first counts.
        """
        held = self._held.find(ending.claim.id)
        is_ours = (
            held is not None and held.claim.lease_token == ending.claim.lease_token
        )
        if held is not None and is_ours and not held.end():
            return
        self._inbox.put(ending)

    def put_progress(self, claim: Claim, progress: dict[str, Any]) -> None:
        """Hand over the progress of an attempt; a newer word replaces an older."""
        with self._progress_lock:
            self._progress[claim] = progress
        self._inbox.put(None)

    @property
    def is_empty(self) -> bool:
        return self._inbox.empty() and not self._batch

    def wake(self) -> None:
        """Let the loop see that it is asked to stop."""
        self._inbox.put(None)

    def step(self, db: Database) -> float:
        """Wait for endings and write them."""
        self._gather(timeout=0.1 if self._batch else 0.5)
        self._write_progress(db)
        written = [ending for ending in self._batch if ending.is_written]
        if written:
            self._batch = [ending for ending in self._batch if not ending.is_written]
            self._tell_done(written)
        if self._batch:
            report = finish_attempts(
                db, self._batch, worker_id=self._worker_id, options=self._options
            )
            # Those held by somebody else wait for the next batch.
            self._batch = report.busy
            self._tell(report)
            notify_pending(db, report.pending)
        self._log.flush()
        return 0.0

    def _gather(self, *, timeout: float) -> None:
        try:
            item = self._inbox.get(timeout=timeout)
            while True:
                if item is not None:
                    self._batch.append(item)
                if len(self._batch) >= BATCH:
                    return
                item = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _write_progress(self, db: Database) -> None:
        with self._progress_lock:
            progress, self._progress = self._progress, {}
        if not progress:
            return
        for claim in write_progress(db, progress, worker_id=self._worker_id):
            held = self._held.find(claim.id)
            # One that has ended meanwhile is not lost.
            if held is not None and not held.is_ended:
                held.flags.lost = True
                self._log.report_lost(claim, what="progress")

    def _tell(self, report: FinishReport) -> None:
        self._tell_done(report.done)
        self._held.remove(ending.claim for ending in report.lost)
        for ending in report.lost:
            what = type(ending.outcome).__name__.lower()
            self._log.report_lost(ending.claim, what=what)

    def _tell_done(self, endings: list[Ending]) -> None:
        self._held.remove(ending.claim for ending in endings)
        for ending in endings:
            match ending.outcome:
                case GivenBack(delay=delay):
                    if delay is not None:
                        self._on_due(delay.total_seconds())
                case Retried(delay=delay):
                    self.processed += 1
                    self.failed += 1
                    self._on_due(delay.total_seconds())
                case Died():
                    self.processed += 1
                    self.failed += 1
                case _:
                    self.processed += 1
            self._log.report_ended(ending)

    def close(self) -> None:
        """Write the last summaries."""
        self._log.flush(is_final=True)
