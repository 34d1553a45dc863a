"""Drain: the last steps of a worker, in order and within its time limit.

Called by Worker.run() once it is asked to stop. Claims stop first and the heartbeat
last, so a draining worker is never rescued. Running jobs end, or are given back at the
worker's limit. Every wait goes through Worker.is_asked_to_stop(): a second signal
shortens it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .worker import Worker

# How long the ends of the last jobs may take to be written, and the end of our row.
LAST_WRITES_SECONDS = 10.0
LAST_ROW_SECONDS = 2.0
# Once running jobs are given back, the process must be over within 2 s.
LAST_MOMENT_SECONDS = 1.0


class Drain:
    """Stops the loops of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        # Monotonic: when running jobs are given back; None: never.
        self._limit: float | None = None
        # True if running jobs had to be left behind in their threads.
        self.has_abandoned = False
        # Attempts that the supervisor has ended and whose threads still run.
        self._ended_by_supervisor = 0

    def set_limit(self, seconds: float) -> None:
        """Give running jobs back in so many seconds. A later limit changes nothing."""
        limit = time.monotonic() + seconds
        self._limit = limit if self._limit is None else min(limit, self._limit)

    @property
    def seconds_left(self) -> float | None:
        """How long the process may still take to end; None: there is no limit."""
        if self._limit is None:
            return None
        return max(0.1, self._limit + LAST_MOMENT_SECONDS - time.monotonic())

    def run(self) -> None:
        """Stop claims and rescue, let running jobs end or go back, stop the beat."""
        worker = self._worker
        self._stop_new_work()
        self.wait(worker.claimer.loop.join, LAST_MOMENT_SECONDS)
        self._release_waiting()
        # Even if nothing was in flight before: a claim may have come in between.
        self._wait_for_jobs()
        self._release_running()
        self._finish_writes()
        now = time.monotonic()
        if not worker.slots.stop_coroutines(max(0.05, self._cap(now + 0.5) - now)):
            self.has_abandoned = True
        worker.deadlines.stop()
        worker.heartbeat.finish()
        self.wait(worker.heartbeat.join, LAST_ROW_SECONDS)

    def _stop_new_work(self) -> None:
        worker = self._worker
        worker.watchdog.stop()
        worker.health.stop()
        running = len(worker.in_flight)
        for loop in (worker.claimer.loop, worker.maintenance.loop):
            loop.stop()
        # Jobs of a claim that is still on its way are given back, not started.
        worker.slots.close()
        for job in worker.in_flight.list():
            job.flags.stopping = True
        if worker.listener is not None:
            worker.listener.loop.stop()
        if running:
            worker.report("worker drains", running=running)

    def wait(self, join: Callable[[float], bool], seconds: float) -> None:
        """Wait for a thread to end: not beyond the limit, which a signal may move."""
        deadline = time.monotonic() + seconds
        while not join(0.02) and time.monotonic() < self._cap(deadline):
            self._worker.is_asked_to_stop()

    def _cap(self, deadline: float) -> float:
        """Return the deadline, or the last moment if that is earlier."""
        if self._limit is None:
            return deadline
        return min(deadline, self._limit + LAST_MOMENT_SECONDS)

    def _release_waiting(self) -> None:
        waiting = self._worker.slots.take_waiting()
        self._worker.finisher.release(job.claim for job in waiting)

    def _wait_for_jobs(self) -> None:
        while self._count_running() > 0:
            self._worker.is_asked_to_stop(0.02)
            if self._limit is not None and time.monotonic() >= self._limit:
                return

    def _count_running(self) -> int:
        """Return how many attempts may still end by themselves."""
        for job in self._worker.in_flight.list():
            if job.place is not None and job.place.is_ended_by_supervisor:
                # The supervisor has written its end; only the thread is left.
                self.has_abandoned = True
                self._worker.in_flight.remove([job.claim])
                self._ended_by_supervisor += 1
        return self._worker.slots.running - self._ended_by_supervisor

    def _release_running(self) -> None:
        """Give back what still runs; its thread ends with the process."""
        for job in self._worker.in_flight.list():
            if job.started is None or not (job.thread or job.task):
                continue
            if (task := job.task) is not None:
                task.get_loop().call_soon_threadsafe(task.cancel)
            else:
                self.has_abandoned = True
            self._worker.finisher.release([job.claim])

    def _finish_writes(self) -> None:
        """Wait until the last ends are written, as long as there is time."""
        worker = self._worker
        deadline = time.monotonic() + LAST_WRITES_SECONDS
        if self._limit is not None:
            deadline = self._limit + LAST_MOMENT_SECONDS
        while len(worker.in_flight) and time.monotonic() < self._cap(deadline):
            worker.finisher.wake()
            worker.is_asked_to_stop(0.01)
        worker.finisher.loop.stop()
        worker.finisher.wake()
        self.wait(worker.finisher.loop.join, 0.5)
        worker.finisher.close()
        if left := len(worker.in_flight):
            text = "the ends of jobs could not be written; they will be rescued"
            worker.report(text, level=logging.WARNING, count=left)
