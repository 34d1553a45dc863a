"""The jobs in flight: a worker's claims, from the claim's reply to the written end.

The claim thread adds, the finish thread removes. Cancel, shutdown and timeout find the
attempt here to set its flags or to interrupt it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from uuid import UUID

from ...context import AttemptFlags
from ...exceptions import Interruption, JobTimeout
from ...outcomes import GivenBack
from ...states import AttemptOutcome
from ...storage.claims import Claim
from ..supervision.memory_values import InterruptReason
from ..supervision.shared_memory import SharedMemory
from .interrupts import strike, wanted, withdraw
from .job_connections import list_connections
from .memory_place import MemoryPlace
from .query_cancel import (
    cancel_queries,
    find_backends,
    has_running_query,
    interrupt_queries,
    report_cancel_errors,
)

# The outcome of a claim that goes back: pending again, its attempt not used.
RELEASED = GivenBack(label=AttemptOutcome.RELEASED)
# Between two requests to cancel the SQL of one handler.
CANCEL_INTERVAL_SECONDS = 0.1


@dataclass(slots=True, eq=False)
class InFlightJob:
    """One claim, and the state of its attempt."""

    claim: Claim
    # Where the supervisor sees it; None without a supervisor.
    place: MemoryPlace | None = None
    in_flight_since: float = field(default_factory=time.monotonic)
    flags: AttemptFlags = field(default_factory=AttemptFlags)
    # Monotonic: when the handler was called, and when it times out.
    started: float | None = None
    deadline: float | None = None
    # Set while the handler runs, by the thread or task that runs it.
    thread: int | None = None
    task: asyncio.Task[None] | None = None
    # It must not start again.
    is_last: bool = False
    # Seconds until the next attempt after a timeout, if that is known.
    retry_delay: float | None = None
    # Its transaction contains its end: the job cannot be taken away before the commit,
    # and after the commit hooks may still run.
    has_end: bool = False
    # Its transaction keeps its snapshot: a write of its row from outside would conflict
    # with it. Its last progress is then written with its end.
    keeps_snapshot: bool = False
    last_progress: dict[str, Any] | None = None
    # Its ending was handed over; a second ending is ignored.
    is_ended: bool = False
    # Django's connections of that thread, whose SQL an interruption cancels.
    wrappers: Sequence[Any] = ()
    # What is to be raised in the handler from outside, and whether that was done or is
    # no longer needed.
    interruption: type[Interruption] | None = None
    is_delivered: bool = False
    # The frame that calls the handler, while the handler runs.
    entry: FrameType | None = None
    # Called once if the interruption is deferred: see Deadlines.
    on_deferred: Callable[[InFlightJob], None] | None = None
    # Taken to enter and leave the handler and to interrupt it: no exception is raised
    # in the worker's own code.
    lock: threading.Lock = field(default_factory=threading.Lock)
    # Whether a thread is cancelling its SQL, and when the last one started.
    _is_cancelling: bool = False
    _cancelled_at: float = 0.0

    def reserve(
        self, *, most: int, cause: InterruptReason = InterruptReason.OUTSIDE
    ) -> None:
        """Take a place in the shared memory for what runs before the handler: code of
        the project, or (cause TIDYING) of the worker."""
        with self.lock:
            if self.place is not None:
                self.place.reserve(most=most, cause=cause)

    def enter(self, *, timeout: float, most: int = 0) -> None:
        """Note that this thread is about to call the handler; the job has at `most`
        this many attempts."""
        with self.lock:
            self._begin(timeout, most)
            self.entry = sys._getframe(1)
            self.thread = threading.get_ident()
            self.wrappers = list_connections()

    def enter_task(self, *, timeout: float, most: int = 0) -> None:
        """Note that this task is about to call the handler; it times out by itself."""
        with self.lock:
            self._begin(timeout, most)

    def _begin(self, timeout: float, most: int) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + timeout
        self.is_last = most == 1
        self.has_end = False
        if self.place is not None:
            self.place.show_call(
                entered=self.started, deadline=self.deadline, most=most
            )

    def leave(self) -> None:
        """Note that the handler has returned; withdraw an interruption not raised yet.

        The place is kept until free(): code of the project still runs until then.
        """
        with self.lock:
            if self.thread is not None and self.interruption is not None:
                self._stop_delivery(self.thread)
                withdraw(self.thread)
            self.thread = self.entry = None
            self.deadline = None
            if self.place is not None:
                self.place.show_return(is_last=self.is_last)

    def free(self) -> None:
        """Free the place: the ending was handed over, and no code of the job runs in
        its thread any more."""
        with self.lock:
            self.deadline = None
            if self.place is not None:
                self.place.free()

    def forget(self) -> None:
        """Note that its end is written."""
        if self.place is not None:
            self.place.forget()

    def overrun(self, *, retry_delay: float | None) -> None:
        """Note that the timeout is over: interrupt a thread, inform the supervisor."""
        self.retry_delay = retry_delay
        if self.thread is not None:
            self.interrupt(JobTimeout)
            return
        with self.lock:
            self.deadline = None
            self._set_limit(JobTimeout)

    def end(self) -> bool:
        """Note that the attempt has ended; False if that was noted before."""
        with self.lock:
            was_ended, self.is_ended = self.is_ended, True
            return not was_ended

    def interrupt(self, cause: type[Interruption]) -> bool:
        """Raise `cause` in the handler, once; return whether the handler was running.

        A coroutine is cancelled. In a thread it is raised where that is safe: now, or
        when deliver() finds it there. Another thread cancels its SQL, because that
        waits for the server.
        """
        if self.interruption is not None:
            return False
        with self.lock:
            is_inside = self.thread is not None or self.task is not None
            if self.interruption is not None or not is_inside:
                return False
            self.interruption = cause
            self._set_limit(cause)
            if self.task is not None:
                self.is_delivered = True
                self.task.get_loop().call_soon_threadsafe(self.task.cancel)
                return True
            assert self.thread is not None
            wanted[self.thread] = self
        if not self.deliver() and self.on_deferred is not None:
            self.on_deferred(self)
        return True

    def deliver(self) -> bool:
        """Raise the interruption if the handler is where that is safe.

        True if nothing is left to do. Never waits: while the lock is taken, the handler
        is entered or left, or its SQL is cancelled.
        """
        if not self.lock.acquire(blocking=False):
            return False
        try:
            thread, entry, cause = self.thread, self.entry, self.interruption
            if self.is_delivered or thread is None or entry is None or cause is None:
                return True
            self._guard_queries()
            interrupt_queries(self.wrappers)
            if strike(thread, entry, cause):
                self._stop_delivery(thread)
                return True
        finally:
            self.lock.release()
        self._start_cancelling()
        return False

    def raise_undelivered(self) -> None:
        """Raise an undelivered interruption in this thread.

        For calls that may raise anyway. This is an ordinary exception: every lock on
        its way is released.
        """
        if self.interruption is None or self.is_delivered:
            return
        with self.lock:
            if self.is_delivered or self.thread != threading.get_ident():
                return
            self._stop_delivery(self.thread)
        raise self.interruption

    def _raise_before_query(
        self,
        execute: Callable[..., Any],
        sql: Any,
        params: Any,
        many: bool,
        context: Any,
    ) -> Any:
        """Wrap Django's execute(): a handler that swallows the error of its cancelled
        query and starts the next one would never be outside of the database."""
        # Let Django roll back to a savepoint on the way out.
        if not (isinstance(sql, str) and "SAVEPOINT" in sql[:30]):
            self.raise_undelivered()
        return execute(sql, params, many, context)

    def _guard_queries(self) -> None:
        """Make the next query raise. Holds the lock."""
        for wrapper in list(self.wrappers):
            if self._raise_before_query not in wrapper.execute_wrappers:
                # First: Django's execute_wrapper() removes the last one at its end.
                wrapper.execute_wrappers.insert(0, self._raise_before_query)

    def _stop_delivery(self, thread: int) -> None:
        """Raise nothing any more. Holds the lock."""
        self.is_delivered = True
        wanted.pop(thread, None)
        for wrapper in list(self.wrappers):
            while self._raise_before_query in wrapper.execute_wrappers:
                wrapper.execute_wrappers.remove(self._raise_before_query)

    def _start_cancelling(self) -> None:
        """Cancel SQL on PostgreSQL in another thread: the server may be slow."""
        now = time.monotonic()
        if self._is_cancelling or now - self._cancelled_at < CANCEL_INTERVAL_SECONDS:
            return
        if not has_running_query(self.wrappers):
            return
        self._is_cancelling, self._cancelled_at = True, now
        try:
            threading.Thread(
                target=self._cancel, name="jobqueue-cancel", daemon=True
            ).start()
        except RuntimeError:
            # No thread could be started.
            self._cancel()

    def _cancel(self) -> None:
        # Under the lock: a job that ends now must not leave first, or the query of the
        # next job on its thread would be cancelled.
        with self.lock:
            is_inside = self.thread is not None and not self.is_delivered
            errors = cancel_queries(self.wrappers) if is_inside else []
        self._is_cancelling = False
        self.deliver()
        report_cancel_errors(errors)

    def _set_limit(self, cause: type[Interruption]) -> None:
        """Set when the supervisor ends an attempt by force. Holds the lock."""
        if self.place is None or self.place.number is None:
            return
        is_timeout = issubclass(cause, JobTimeout)
        self.place.show_interrupt(
            InterruptReason.TIMEOUT if is_timeout else InterruptReason.CANCELLED,
            delay=self.retry_delay,
            pids=find_backends(self.wrappers),
        )


class InFlightJobs:
    """All claims of this worker whose end is not written."""

    def __init__(
        self, shared_memory: SharedMemory | None = None, *, grace: float = 0.0
    ) -> None:
        self._shared_memory = shared_memory
        self._grace = grace
        self._jobs: dict[UUID, InFlightJob] = {}
        self._lock = threading.Lock()
        # Jobs whose interruption is deferred, and what wakes Deadlines for them.
        self.deferred: deque[InFlightJob] = deque()
        self.has_deferred = threading.Event()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, claims: Iterable[Claim]) -> list[InFlightJob]:
        now, defer = time.monotonic(), self.defer
        jobs = [
            InFlightJob(claim, self._make_place(claim), now, on_deferred=defer)
            for claim in claims
        ]
        with self._lock:
            self._jobs.update((job.claim.id, job) for job in jobs)
        return jobs

    def _make_place(self, claim: Claim) -> MemoryPlace | None:
        if self._shared_memory is None:
            return None
        return MemoryPlace(claim, self._shared_memory, self._grace)

    def remove(self, claims: Iterable[Claim]) -> None:
        with self._lock:
            for claim in claims:
                job = self._jobs.pop(claim.id, None)
                if job is None:
                    continue
                if job.claim.lease_token == claim.lease_token:
                    job.forget()
                else:
                    # This worker has claimed it again in the meantime.
                    self._jobs[claim.id] = job

    def defer(self, job: InFlightJob) -> None:
        """Deliver an interruption later."""
        self.deferred.append(job)
        self.has_deferred.set()

    def find(self, id: UUID) -> InFlightJob | None:
        return self._jobs.get(id)

    def list(self) -> list[InFlightJob]:
        with self._lock:
            return list(self._jobs.values())
