"""Finisher: writes the ends of attempts in batches, and reports them.

While one batch is on its way to the database the next one collects. A busy worker
writes hundreds at a time, an idle one writes at once. An ending that cannot be written
is parked (parking.py) and does not block the others.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, assert_never
from uuid import UUID

from ..database_errors import is_database_trouble
from ..job_log import JobLog
from ..lifecycle.finish import FinishReport, finish_attempts
from ..log_events import Event
from ..options import Options
from ..outcomes import (
    Cancelled,
    Crashed,
    Died,
    GivenBack,
    Lost,
    Outcome,
    Retried,
    Succeeded,
)
from ..storage.claims import Claim
from ..storage.database import Database
from ..storage.endings import Ending
from ..storage.notify import notify_pending
from ..storage.progress import write_progress
from .loop import Loop
from .parking import ParkedEndings
from .running.in_flight import RELEASED, InFlightJobs

logger = logging.getLogger("django_jobqueue.worker")

MAX_BATCH_ENDINGS = 500
# Above this many unwritten ends a worker claims nothing new.
MAX_UNWRITTEN_ENDINGS = 10 * MAX_BATCH_ENDINGS
# How long a step waits for the first ending: while others wait for a locked row, and
# at the most.
RETRY_SECONDS = 0.1
INBOX_WAIT_SECONDS = 0.5


class Finisher:
    """The inbox of endings and the loop that empties it."""

    def __init__(
        self,
        in_flight: InFlightJobs,
        log: JobLog,
        *,
        worker_id: UUID,
        options: Options,
        on_due: Callable[[float], None],
    ) -> None:
        self.loop = Loop("finish", self.step, alias=options.database)
        self.processed = 0
        self.failed = 0
        self._in_flight = in_flight
        self._log = log
        self._worker_id = worker_id
        self._options = options
        # Called with the delay of each retry: the claim loop promotes it in time.
        self._on_due = on_due
        self._inbox: queue.SimpleQueue[Ending | None] = queue.SimpleQueue()
        # Endings taken from the inbox and not written yet; kept after a database error.
        self._batch: list[Ending] = []
        self._parked = ParkedEndings(worker_id, batch_size=MAX_BATCH_ENDINGS)
        # Monotonic: since when every write has failed; None: the last one worked.
        self.failing_since: float | None = None
        self._progress: dict[Claim, dict[str, Any]] = {}
        self._progress_lock = threading.Lock()

    def put(self, ending: Ending) -> None:
        """Hand over an ending, from any thread.

        Of two endings of one attempt (a job that ends while the shutdown releases it)
        the first counts.
        """
        job = self._in_flight.find(ending.claim.id)
        is_ours = job is not None and job.claim.lease_token == ending.claim.lease_token
        if job is not None and is_ours and not job.end():
            return
        self._inbox.put(ending)

    def release(self, claims: Iterable[Claim]) -> None:
        """Give claims back: pending again, their attempts not used."""
        for claim in claims:
            self.put(Ending(claim=claim, outcome=RELEASED))

    def put_progress(self, claim: Claim, progress: dict[str, Any]) -> None:
        """Hand over the progress of an attempt; it replaces what is not written yet."""
        with self._progress_lock:
            self._progress[claim] = progress
        self._inbox.put(None)

    @property
    def unwritten(self) -> int:
        """How many ends wait to be written, parked ones included."""
        return self._inbox.qsize() + len(self._batch) + len(self._parked)

    @property
    def parked_since(self) -> float | None:
        """Since when (monotonic) an ending could not be written; None: all were."""
        return self._parked.since

    def wake(self) -> None:
        """End the wait of the current step, so that the loop can stop."""
        self._inbox.put(None)

    def step(self, db: Database) -> float:
        """Wait for endings and write them."""
        self._gather(timeout=self._choose_timeout())
        self._write_progress(db)
        written = [ending for ending in self._batch if ending.is_written]
        if written:
            self._batch = [ending for ending in self._batch if not ending.is_written]
            self._report_done(written)
        if self._batch:
            # Endings of rows that another session has locked wait for the next batch.
            report = self._write(db, self._batch)
            self._batch = report.busy
            notify_pending(db, report.pending)
        self._retry_parked(db)
        self._log.flush()
        return 0.0

    def _choose_timeout(self) -> float:
        if self._batch:
            return RETRY_SECONDS
        seconds = self._parked.seconds_until_retry(time.monotonic())
        return (
            INBOX_WAIT_SECONDS if seconds is None else min(INBOX_WAIT_SECONDS, seconds)
        )

    def _retry_parked(self, db: Database) -> None:
        began = time.monotonic()
        if endings := self._parked.take_due(began):
            report = self._write(db, endings)
            self._parked.remove(report.busy)
            self._batch += report.busy
            self._parked.note_retry(endings, took=time.monotonic() - began)
            notify_pending(db, report.pending)

    def _write(self, db: Database, endings: list[Ending]) -> FinishReport:
        """Write endings and report them.

        The caller takes the unwritten endings from the report before it notifies: if
        NOTIFY fails, no ending may be reported twice.
        """
        report = FinishReport()
        if self.failing_since is None:
            self.failing_since = time.monotonic()
        try:
            finish_attempts(
                db,
                endings,
                worker_id=self._worker_id,
                options=self._options,
                report=report,
            )
            self.failing_since = None
        except Exception:
            # Written endings are reported now: a second try may not find their rows.
            self._batch = _list_left(self._batch, report)
            for ending in endings:
                ending.is_in_doubt = True
            raise
        finally:
            self._parked.park(report.unwritten)
            self._parked.remove([*report.done, *report.lost])
            self._report(report)
        return report

    def _gather(self, *, timeout: float) -> None:
        try:
            item = self._inbox.get(timeout=timeout)
            while True:
                if item is not None:
                    self._batch.append(item)
                if len(self._batch) >= MAX_BATCH_ENDINGS:
                    return
                item = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _write_progress(self, db: Database) -> None:
        with self._progress_lock:
            progress, self._progress = self._progress, {}
        if not progress:
            return
        try:
            refused = write_progress(db, progress, worker_id=self._worker_id)
        except Exception as error:
            # Ends come first: only an error that concerns them too stops the step.
            if is_database_trouble(error):
                raise
            logger.exception(Event("progress of jobs cannot be written"))
            return
        for claim in refused:
            job = self._in_flight.find(claim.id)
            # A job that has ended in the meantime is not lost.
            if job is not None and not job.is_ended:
                job.flags.lost = True
                self._log.report_lost(claim, what="progress")

    def _report(self, report: FinishReport) -> None:
        self._report_done(report.done)
        self._in_flight.remove(ending.claim for ending in report.lost)
        for ending in report.lost:
            what = type(ending.outcome).__name__.lower()
            self._log.report_lost(ending.claim, what=what)

    def _report_done(self, endings: list[Ending]) -> None:
        self._in_flight.remove(ending.claim for ending in endings)
        for ending in endings:
            self._count(ending.outcome)
            self._log.report_ended(ending)

    def _count(self, outcome: Outcome) -> None:
        """Count an outcome, and announce the time of the next attempt."""
        match outcome:
            # First, because it is the usual one.
            case Succeeded() | Cancelled() | Crashed() | Lost():
                self.processed += 1
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
                assert_never(outcome)

    def close(self) -> None:
        """Write the last summaries."""
        self._log.flush(is_final=True)


def _list_left(endings: list[Ending], report: FinishReport) -> list[Ending]:
    """Return the endings that a failed call has neither written, lost nor refused."""
    handled = [*report.done, *report.lost]
    handled += [ending for group in report.unwritten for ending in group.endings]
    keys = {(ending.claim.id, ending.claim.lease_token) for ending in handled}
    return [
        ending
        for ending in endings
        if (ending.claim.id, ending.claim.lease_token) not in keys
    ]
