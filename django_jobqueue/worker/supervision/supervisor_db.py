"""SupervisorDb: the supervisor's one thread with a database connection.

It beats for all children and writes what they can no longer write: the ends of attempts
that did not stop in time, and of the jobs that a dead child has left behind. A job that
holds the interpreter's lock or exhausts a connection pool cannot block it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import assert_never

from ...database_errors import is_database_trouble, is_lock_wait
from ...job_log import JobLog
from ...lifecycle.finish import FinishReport, finish_attempts
from ...options import Options
from ...outcomes import Cancelled, Crashed, Died, GivenBack, Lost, Retried, Succeeded
from ...storage.backends import end_backends
from ...storage.backlog import count_backlog
from ...storage.database import Database
from ...storage.endings import Ending
from ...storage.notify import notify_due, notify_pending
from ...storage.ownership import read_owned_jobs
from ...storage.worker_rows import beat_workers, deregister
from ..health.log_queue import LogQueue
from ..loop import Loop
from ..receivers import MAX_WAITING_SIGNALS, Receivers
from .child import Child
from .child_endings import ChildWrite, make_endings
from .deaths import Death
from .memory_values import RunningAttempt

# The supervisor's log: a reader that blocks must stop neither its main thread nor the
# beats.
logger = LogQueue("django_jobqueue.worker")

# Between two tries of a write that a lock of another session blocks.
LOCK_RETRY_SECONDS = 0.1
# Between two tries of a write that failed for another reason.
FAILED_PAUSE_SECONDS = 1.0


class SupervisorDb:
    """Beats for the children, and writes for them in between."""

    def __init__(self, options: Options, *, on_suspects: Callable[[], None]) -> None:
        self.loop = Loop("heartbeat", self.step, alias=options.database, log=logger)
        self._options = options
        # Called when a job has to run alone from now on.
        self._on_suspects = on_suspects
        self._lock = threading.RLock()
        self._children: list[Child] = []
        self._writes: list[ChildWrite] = []
        self._next_beat = 0.0
        self._is_ending = False
        # Monotonic: the moment before the last confirmed beat; 0.0 before the first.
        self.confirmed = 0.0
        # (monotonic moment, waiting jobs) of the last requested count.
        self.backlog = (0.0, 0)
        self._backlog_limit = 0
        self.receivers = Receivers()
        # Bounded, because log lines may block. None: the end.
        self._endings: queue.Queue[tuple[Child, Ending] | None] = queue.Queue(
            MAX_WAITING_SIGNALS
        )
        self._reporter = threading.Thread(
            target=self._report_endings, name="jobqueue-reports", daemon=True
        )

    def start(self) -> None:
        self.loop.start()
        self.start_reports()

    def start_reports(self) -> None:
        self.receivers.start()
        self._reporter.start()

    def add(self, child: Child) -> None:
        """Beat for a child from now on; the first beat is sent at once."""
        with self._lock:
            self._children.append(child)
        self._next_beat = 0.0
        self.loop.wake()

    def end_attempt(self, child: Child, attempt: RunningAttempt) -> None:
        """Write the end of an attempt that did not stop in time."""
        self._add_write(ChildWrite(child=child, overruns=[attempt]))

    def record_death(self, death: Death) -> None:
        """Stop beating for a child that has ended, and write the ends of its jobs."""
        child = death.child
        with self._lock:
            self._children.remove(child)
            overruns = [
                attempt
                for write in self._writes
                if write.child is child and write.death is None
                for attempt in write.overruns
            ]
            # A child that was never registered has claimed nothing.
            if child.shared_memory.confirmed:
                self._add_write(ChildWrite(child=child, overruns=overruns, death=death))

    def _add_write(self, write: ChildWrite) -> None:
        ttl = self._options.heartbeat_ttl.total_seconds()
        write.deadline = time.monotonic() + 2 * ttl
        with self._lock:
            self._writes.append(write)
        self.loop.wake()

    def request_backlog(self, limit: int) -> None:
        """Request a backlog count, capped at `limit`; the result is in `backlog`."""
        self._backlog_limit = limit
        self.loop.wake()

    def finish(self) -> None:
        """Ask the loop to end after the last writes."""
        self._is_ending = True
        if not self._writes:
            self.loop.stop()
        self.loop.wake()

    def finish_reports(self, timeout: float) -> bool:
        """Wait for the last log lines and signals; return whether all are out."""
        deadline = time.monotonic() + timeout
        if self._endings.empty():
            self._endings.put(None)
        self._reporter.join(timeout)
        has_logged = not self._reporter.is_alive()
        left = max(0.0, deadline - time.monotonic())
        return has_logged and self.receivers.finish(left)

    @property
    def has_unwritten(self) -> bool:
        return bool(self._writes)

    def step(self, db: Database) -> float:
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + self._options.heartbeat_interval.total_seconds()
            try:
                self._beat(db)
            except Exception:
                self._next_beat = 0.0
                raise
        self._run_writes(db)
        if self._writes:
            return LOCK_RETRY_SECONDS
        if self._is_ending:
            self.loop.stop()
        if self._backlog_limit:
            self._count_backlog(db)
        return max(0.0, self._next_beat - time.monotonic())

    def _beat(self, db: Database) -> None:
        # record_death() takes the same lock. A child that has exited and whose death is
        # not recorded yet gets no beat: others may rescue its jobs.
        with self._lock:
            # A dead child keeps its beat until its endings are written: a rescue would
            # take its jobs for lost.
            dead = {write.child for write in self._writes if write.death is not None}
            alive = [child for child in self._children if not child.has_exited]
            children = [*alive, *dead]
            sent = time.monotonic()
            beats = [(child.identity, child.read_beat_values()) for child in children]
        if not beats:
            return
        replies = beat_workers(db, beats, ttl=self._options.heartbeat_ttl)
        self.confirmed = sent
        with self._lock:
            for child in self._children:
                if child.id in replies:
                    child.shared_memory.confirm(sent, replies[child.id])
            known = [*self._children, *(write.child for write in self._writes)]
        for child in children:
            if child not in known:
                # It ended while its first beat was on the way.
                deregister(db, child.id)

    def _count_backlog(self, db: Database) -> None:
        limit, self._backlog_limit = self._backlog_limit, 0
        names = [name for name, _ in self._options.queues or ()] or None
        exclude = list(self._options.exclude_queues)
        count = count_backlog(db, names, exclude=exclude, limit=limit)
        self.backlog = (time.monotonic(), count)

    def _run_writes(self, db: Database) -> None:
        """Try each write once; stop at a lock wait, because a beat may be due."""
        for write in list(self._writes):
            if time.monotonic() < write.next_try:
                continue
            try:
                is_done = self._run_write(db, write)
            except Exception as error:
                if not is_lock_wait(error):
                    raise
                # A locked table. The next step begins with another write.
                with self._lock:
                    self._writes.remove(write)
                    self._writes.append(write)
                return
            if is_done:
                # record_death() reads the list.
                with self._lock:
                    self._writes.remove(write)

    def _run_write(self, db: Database, write: ChildWrite) -> bool:
        """Write what can be written now; return whether the write is finished."""
        try:
            report = self._try_write(db, write)
        except Exception as error:
            if is_database_trouble(error) or is_lock_wait(error):
                raise
            write.next_try = time.monotonic() + FAILED_PAUSE_SECONDS
            if not write.has_failed:
                logger.exception("a write for a child failed")
            write.has_failed = True
            return self._is_given_up(write)
        if report.unwritten:
            write.next_try = time.monotonic() + FAILED_PAUSE_SECONDS
            return self._is_given_up(write)
        return not report.busy

    def _is_given_up(self, write: ChildWrite) -> bool:
        # The end of an overrun is kept until the death of its child is recorded.
        is_dead = write.death is not None or write.child not in self._children
        return is_dead and time.monotonic() > write.deadline

    def _try_write(self, db: Database, write: ChildWrite) -> FinishReport:
        owned = read_owned_jobs(db, write.child.id)
        endings = make_endings(owned, write, self._options)
        report = finish_attempts(
            db, endings, worker_id=write.child.id, options=self._options
        )
        notify_pending(db, report.pending)
        self._report(db, write, report.done)
        if report.busy or report.unwritten:
            return report
        if write.death is None:
            self._end_backends(db, *write.overruns)
        elif write.death.is_clean and not report.lost:
            deregister(db, write.child.id)
        return report

    def _end_backends(self, db: Database, attempt: RunningAttempt) -> None:
        # The child read the backends when it set the limit, one grace before it.
        read = attempt.limit - self._options.grace.total_seconds()
        end_backends(db, attempt.pids, age=time.monotonic() - read)

    def _report(self, db: Database, write: ChildWrite, done: list[Ending]) -> None:
        for ending in done:
            # Full: log lines block, and this cannot be logged either.
            with suppress(queue.Full):
                self._endings.put_nowait((write.child, ending))
            match ending.outcome:
                case Crashed(delay=delay):
                    self._on_suspects()
                    notify_due(db, delay.total_seconds())
                case Died(crash=1) if write.child.is_isolated:
                    # Other suspects may wait for the process that it has killed.
                    self._on_suspects()
                case Retried(delay=delay):
                    notify_due(db, delay.total_seconds())
                case Died() | Succeeded() | GivenBack() | Lost() | Cancelled():
                    pass
                case _:
                    assert_never(ending.outcome)

    def _report_endings(self) -> None:
        """Log in this thread and send signals in another: log handlers and receivers
        are code of the project."""
        while (item := self._endings.get()) is not None:
            child, ending = item
            log = JobLog(child.id, is_complete=True, send=self.receivers.send)
            log.report_ended(ending)
