"""Slots: which held job runs next, and where: sync ones in threads, async on the loop.

A thread that ends a job takes the next one itself, so that short jobs cost no hand-over
between threads. At most `concurrency` jobs run at a time, of both kinds together.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from django.db import connections

from ..lifecycle.endings import Ending
from ..registry import find_handler
from .attempt import run_attempt
from .bench import Bench
from .connections import close_idle_connections
from .coroutines import Coroutines
from .held import HeldJob

# After this long without a job a thread closes its connections.
IDLE = 1.0


class Slots:
    """Runs held jobs, `concurrency` at a time."""

    def __init__(
        self,
        concurrency: int,
        bench: Bench,
        *,
        on_end: Callable[[Ending], None],
        on_room: Callable[[], None],
    ) -> None:
        self.concurrency = concurrency
        # The waiting jobs below which the claim loop is told that there is room.
        self.low_water = 0
        self._bench = bench
        self._on_end = on_end
        self._on_room = on_room
        self._waiting: deque[HeldJob] = deque()
        self._condition = threading.Condition()
        self._running = 0
        # Jobs that ended so far, and the seconds they ran in all.
        self.ended = 0
        self.seconds = 0.0
        self._idle_threads = 0
        self._threads = 0
        # A thread was woken or started and has not looked for work yet.
        self._is_waking = False
        self._is_closed = False
        self._coroutines = Coroutines(bench, on_end=self._end_coroutine)

    @property
    def running(self) -> int:
        return self._running

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, jobs: Iterable[HeldJob]) -> None:
        """Take over claimed jobs, the most urgent first."""
        with self._condition:
            self._waiting.extend(jobs)
            self._start_more()

    def take_waiting(self, *, older_than: float = 0.0) -> list[HeldJob]:
        """Take out jobs that have not started, to be given back."""
        limit = time.monotonic() - older_than
        taken: list[HeldJob] = []
        with self._condition:
            # In the order in which they came.
            while self._waiting and self._waiting[0].held_since <= limit:
                taken.append(self._waiting.popleft())
        return taken

    def close(self) -> None:
        """Start nothing more; running jobs go on."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def stop_coroutines(self, timeout: float) -> bool:
        """End the event loop; tell whether nothing was left behind."""
        return self._coroutines.stop(timeout)

    def _start_more(self) -> None:
        """Start what fits: coroutines at once, then a thread. Holds the lock."""
        self._start_coroutines()
        if self._has_work():
            self._wake_thread()

    def _wake_thread(self) -> None:
        """Have one more thread look for work, which will wake the next. Holds the lock.

        One at a time: while it comes, the threads that are awake may have done all of
        many short jobs, and whoever comes for nothing fights for the interpreter.
        """
        if self._is_waking:
            return
        if self._idle_threads:
            self._is_waking = True
            self._condition.notify()
        elif self._threads < self.concurrency:
            # Before the start, which lets the new thread run at once.
            self._is_waking = True
            self._threads += 1
            threading.Thread(
                target=self._work, name=f"jobqueue-job-{self._threads}", daemon=True
            ).start()

    def _start_coroutines(self) -> None:
        """Start the async jobs at the head of the line. Holds the lock."""
        while self._has_work():
            handler = find_handler(self._waiting[0].claim.job_type)
            if handler is None or not handler.is_async:
                return
            self._running += 1
            self._coroutines.start(self._waiting.popleft())

    def _work(self) -> None:
        """Run sync jobs until the worker stops. The body of a job thread."""
        self._is_waking = False
        while (held := self._take()) is not None:
            ending = run_attempt(held, self._bench)
            with self._condition:
                self._note_end(ending)
            self._on_end(ending)
            del held, ending
        connections.close_all()

    def _has_work(self) -> bool:
        return (
            bool(self._waiting)
            and self._running < self.concurrency
            and not self._is_closed
            and not self._bench.is_fenced()
        )

    def _note_end(self, ending: Ending) -> None:
        self._running -= 1
        self.ended += 1
        self.seconds += ending.ran

    def _take(self) -> HeldJob | None:
        """Wait for a job for this thread; None when the worker stops."""
        # The slot is free: without this word a full claim would be the last one.
        if len(self._waiting) <= self.low_water:
            self._on_room()
        with self._condition:
            while True:
                self._start_coroutines()
                if self._has_work():
                    self._running += 1
                    held = self._waiting.popleft()
                    self._start_more()
                    break
                if self._is_closed:
                    self._threads -= 1
                    return None
                self._idle_threads += 1
                has_news = self._condition.wait(IDLE)
                self._idle_threads -= 1
                # Also where the word came just when it had waited long enough.
                self._is_waking = False
                if not has_news:
                    close_idle_connections()
        return held

    def _end_coroutine(self, ending: Ending) -> None:
        with self._condition:
            self._note_end(ending)
            self._start_more()
        self._on_end(ending)
        if len(self._waiting) <= self.low_water:
            self._on_room()
