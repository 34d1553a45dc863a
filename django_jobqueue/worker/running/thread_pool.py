"""ThreadPool: which claimed job runs next. Sync jobs run in threads, async on the loop.

A thread that ends a job takes the next one itself: short jobs cost no hand-over between
threads. At most `concurrency` jobs run at a time, of both kinds together. Each attempt
runs in a copy of a clean context: the next one sees nothing that it sets.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context
from datetime import timedelta

from django.core.cache import caches
from django.db import connections

from ...failures import Failure
from ...log_events import Event
from ...outcomes import Died, GivenBack
from ...registry import find_handler
from ...states import AttemptOutcome, DeadReason
from ...storage.endings import Ending
from ..health.progress import Part
from .attempt import run_attempt
from .attempt_env import AttemptEnv
from .event_loop import EventLoop
from .forked import end_copy, fork_depth
from .in_flight import InFlightJob
from .job_connections import close_idle_connections
from .process_state import ProcessState, read_process_state
from .shortage import Shortage

# After this long without a job a thread closes its connections.
IDLE_CLOSE_SECONDS = 1.0
# Until the next try to start a thread, after the system refused one.
RETRY_START_SECONDS = 1.0

logger = logging.getLogger("django_jobqueue.worker")


class NoThreads(Exception):
    """The system gives this worker no thread to run jobs in."""


# Of a job whose thread ended with an unexpected error.
THREAD_DIED = Died(
    reason=DeadReason.EXCEPTION,
    failure=Failure(message="The thread that ran this job ended unexpectedly."),
)
NO_LOOP = GivenBack(
    label=AttemptOutcome.RELEASED, delay=timedelta(seconds=RETRY_START_SECONDS)
)


class ThreadPool:
    """Runs claimed jobs, `concurrency` at a time."""

    def __init__(
        self,
        concurrency: int,
        env: AttemptEnv,
        *,
        on_end: Callable[[Ending], None],
        on_room: Callable[[], None],
    ) -> None:
        self.concurrency = concurrency
        # At this many waiting jobs or fewer, on_room() is called.
        self.low_water = 0
        self._env = env
        self._on_end = on_end
        self._on_room = on_room
        self._waiting: deque[InFlightJob] = deque()
        self._condition = threading.Condition()
        self._running = 0
        # Jobs that ended so far, and the seconds they ran in all.
        self.ended = 0
        self.seconds = 0.0
        self._idle_threads = 0
        self._threads = 0
        # A thread was woken or started and has not taken a job yet.
        self._is_waking = False
        self._is_closed = False
        # Monotonic: when to try again to start a thread; 0: the last start worked.
        self._retry_start_at = 0.0
        self._shortage: Event | None = None
        self._thread_shortage, self._loop_shortage = Shortage(), Shortage()
        self._coroutines = EventLoop(env, on_end=self._end_coroutine)
        # Read with the first jobs: receivers of worker_started may change it.
        self._process: ProcessState | None = None

    @property
    def running(self) -> int:
        return self._running

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, jobs: Iterable[InFlightJob]) -> None:
        """Take over claimed jobs, the most urgent first.

        Raises NoThreads if there is no thread to run them. The jobs wait nevertheless,
        until a thread starts or take_waiting() takes them out.
        """
        if self._process is None:
            self._process = read_process_state()
        with self._condition:
            self._waiting.extend(jobs)
            self._start_more()
            has_no_thread = (
                bool(self._retry_start_at) and not self._threads and self._has_work()
            )
        self._report_shortage()
        if has_no_thread:
            raise NoThreads("no thread could be started for the jobs")

    def take_waiting(self, *, older_than: float = 0.0) -> list[InFlightJob]:
        """Take out jobs that have not started, to be released; also those that a
        blocked event loop has not taken."""
        limit = time.monotonic() - older_than
        taken: list[InFlightJob] = []
        with self._condition:
            # In the order in which they came.
            while self._waiting and self._waiting[0].in_flight_since <= limit:
                taken.append(self._waiting.popleft())
            coming = self._coroutines.take_back(held_until=limit)
            self._running -= len(coming)
            self._start_more()
        return taken + coming

    def list_parts(self) -> list[Part]:
        """Return what Health has to watch."""
        loop = self._coroutines
        return [loop, loop.executors, self._thread_shortage, self._loop_shortage]

    def close(self) -> None:
        """Start nothing more; running jobs go on."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def stop_coroutines(self, timeout: float) -> bool:
        """End the event loop; return whether nothing was left behind."""
        return self._coroutines.stop(timeout)

    def _start_more(self) -> None:
        """Start what fits: coroutines at once, then a thread. Holds the lock."""
        self._start_coroutines()
        if self._has_work():
            self._wake_thread()

    def _wake_thread(self) -> None:
        """Wake or start one more thread, which wakes the next. Holds the lock.

        One at a time: until it runs, the threads that are awake may have done many
        short jobs, and a thread without work only competes for the GIL.
        """
        if self._is_waking:
            return
        if self._idle_threads:
            self._is_waking = True
            self._condition.notify()
        elif self._threads < self.concurrency and self._may_start():
            # Before the start, which lets the new thread run at once.
            self._is_waking = True
            self._threads += 1
            try:
                threading.Thread(
                    target=self._work, name=f"jobqueue-job-{self._threads}", daemon=True
                ).start()
                self._retry_start_at = 0.0
                self._thread_shortage.clear()
            except RuntimeError as error:
                # The other threads go on; the next one to take a job tries again.
                self._is_waking = False
                self._threads -= 1
                self._thread_shortage.note()
                self._note_shortage(error)

    def _may_start(self) -> bool:
        return not self._retry_start_at or time.monotonic() >= self._retry_start_at

    def _note_shortage(self, error: Exception) -> None:
        """Note that the system has no room for a thread. Holds the lock."""
        if not self._retry_start_at:
            self._shortage = Event(
                "a thread could not be started", error=error, threads=self._threads
            )
        self._retry_start_at = time.monotonic() + RETRY_START_SECONDS

    def _report_shortage(self) -> None:
        """Log it, once. Without the lock: logging may wait."""
        shortage, self._shortage = self._shortage, None
        if shortage is not None:
            logger.error(shortage)

    def _start_coroutines(self) -> None:
        """Start the async jobs at the head of the queue. Holds the lock."""
        while self._has_work():
            handler = find_handler(self._waiting[0].claim.job_type)
            if handler is None or not handler.is_async:
                return
            self._start_coroutine(self._waiting.popleft())

    def _start_coroutine(self, job: InFlightJob) -> None:
        self._running += 1
        try:
            self._coroutines.start(job)
            self._loop_shortage.clear()
        except (OSError, RuntimeError) as error:
            # No thread or no file descriptors for the loop. Given back with a delay:
            # another worker may have them.
            self._running -= 1
            self._loop_shortage.note()
            self._note_shortage(error)
            self._on_end(Ending(claim=job.claim, outcome=NO_LOOP))

    def _work(self) -> None:
        """Run sync jobs until the worker stops. The body of a job thread.

        If an unexpected error ends the thread, another one can take its place.
        """
        self._is_waking = False
        try:
            clean = _make_clean_context()
            while (job := self._take()) is not None:
                self._run(job, clean)
                del job
        finally:
            with self._condition:
                self._threads -= 1
                self._start_more()
            connections.close_all()

    def _run(self, job: InFlightJob, clean: Context) -> None:
        ending = None
        depth = fork_depth()
        context = clean.copy()
        assert self._process is not None
        try:
            ending = context.run(run_attempt, job, self._env)
        finally:
            # A receiver or middleware may fork as well.
            if fork_depth() != depth:
                end_copy(sys.exception())
            if ending is None:
                ending = Ending(claim=job.claim, outcome=THREAD_DIED)
            try:
                self._on_end(ending)
                # Frees what the job has set, which may run its code: before its place
                # is free for another job.
                del context
            finally:
                self._process.restore()
                job.free()
                with self._condition:
                    self._note_end(ending)

    def _has_work(self) -> bool:
        return (
            bool(self._waiting)
            and self._running < self.concurrency
            and not self._is_closed
            and not self._env.is_fenced()
        )

    def _note_end(self, ending: Ending) -> None:
        self._running -= 1
        self.ended += 1
        self.seconds += ending.ran

    def _take(self) -> InFlightJob | None:
        """Wait for a job for this thread; None when the worker stops."""
        # The slot is free: without this call a full claim would be the last one.
        if len(self._waiting) <= self.low_water:
            self._on_room()
        job = None
        while job is None:
            with self._condition:
                self._start_coroutines()
                if self._has_work():
                    self._running += 1
                    job = self._waiting.popleft()
                    self._start_more()
                    break
                if self._is_closed:
                    return None
                self._idle_threads += 1
                is_notified = self._condition.wait(IDLE_CLOSE_SECONDS)
                self._idle_threads -= 1
                # Also if it was notified just when the wait timed out.
                self._is_waking = False
            if not is_notified:
                self._close_idle()
        if self._shortage is not None:
            self._report_shortage()
        return job

    def _close_idle(self) -> None:
        """Close this thread's connections, without the lock: closing may hang. The
        thread is not counted meanwhile, so that another can start in its place."""
        with self._condition:
            self._threads -= 1
        try:
            close_idle_connections()
        finally:
            with self._condition:
                self._threads += 1

    def _end_coroutine(self, ending: Ending) -> None:
        if self._process is not None:
            self._process.restore()
        with self._condition:
            self._note_end(ending)
            self._start_more()
        self._on_end(ending)
        if len(self._waiting) <= self.low_water:
            self._on_room()


def _make_clean_context() -> Context:
    """Return the context of which each attempt of this thread gets a copy.

    As empty as that of a new thread, but for the clients of Django's caches: made in
    the copies, each attempt would connect anew.
    """
    clean = Context()
    clean.run(_make_cache_clients)
    return clean


def _make_cache_clients() -> None:
    for alias in caches:
        # A backend that cannot be made fails where it is used.
        with suppress(Exception):
            caches[alias]
