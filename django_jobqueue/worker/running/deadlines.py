"""Deadlines: interrupts attempts that exceed their timeout, and retries deliveries.

Async attempts time out by themselves; for those only the supervisor learns when to end
them by force. No single job may stop or delay this thread: it never waits for a lock of
an attempt, for the database or for logging, and an error of one job affects only that
job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ...failures import describe_exception
from ...log_events import Event
from .in_flight import InFlightJob, InFlightJobs

logger = logging.getLogger("django_jobqueue.worker")

# The longest and the shortest time between two checks of all deadlines.
MAX_CHECK_SECONDS = 0.25
MIN_CHECK_SECONDS = 0.005
# Between two tries to deliver an interruption; the pause grows from one to the other.
FIRST_DELIVERY_SECONDS, MAX_DELIVERY_SECONDS = 0.002, 0.02


class Deadlines:
    """A thread that watches the deadlines of all attempts of a worker."""

    def __init__(
        self,
        in_flight: InFlightJobs,
        *,
        find_delay: Callable[[InFlightJob], float | None],
    ) -> None:
        self._in_flight = in_flight
        # Returns how long a timed-out job waits for its next attempt: the supervisor
        # may have to write that without us.
        self._find_delay = find_delay
        self._stopping = threading.Event()
        # Monotonic: when to check all deadlines again.
        self._next_check = 0.0
        self._undelivered: list[InFlightJob] = []
        self._delivery_pause = FIRST_DELIVERY_SECONDS

    def start(self) -> None:
        threading.Thread(
            target=self._run, name="jobqueue-deadlines", daemon=True
        ).start()

    def stop(self) -> None:
        self._stopping.set()
        self._in_flight.has_deferred.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._in_flight.has_deferred.wait(self.check())

    def check(self) -> float:
        """Interrupt overdue attempts; return the seconds until the next check."""
        self._in_flight.has_deferred.clear()
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + max(MIN_CHECK_SECONDS, self._check_all(now) - now)
        delay = self._next_check - now
        self._deliver()
        if self._undelivered:
            delay = min(delay, self._delivery_pause)
        return delay

    def _check_all(self, now: float) -> float:
        """Interrupt overdue attempts; return when to check next (monotonic)."""
        nearest = now + MAX_CHECK_SECONDS
        for job in self._in_flight.list():
            deadline = job.deadline
            if deadline is None or job.interruption is not None:
                continue
            if deadline <= now:
                self._time_out(job)
            elif deadline < nearest:
                nearest = deadline
        return nearest

    def _time_out(self, job: InFlightJob) -> None:
        delay: float | None = None
        try:
            # The row or the settings may hold a value that cannot be read.
            delay = self._find_delay(job)
        except BaseException as error:
            _report_aside(job, error)
        try:
            job.overrun(retry_delay=delay)
        except BaseException as error:
            # The supervisor has known the limit since the attempt started.
            job.deadline = None
            _report_aside(job, error)

    def _deliver(self) -> None:
        """Retry interruptions that could not be raised where the handlers were."""
        if self._in_flight.deferred:
            self._delivery_pause = FIRST_DELIVERY_SECONDS
            while self._in_flight.deferred:
                self._undelivered.append(self._in_flight.deferred.popleft())
        elif self._undelivered:
            self._delivery_pause = min(self._delivery_pause * 1.5, MAX_DELIVERY_SECONDS)
        self._undelivered = [job for job in self._undelivered if not _deliver(job)]


def _deliver(job: InFlightJob) -> bool:
    try:
        return job.deliver()
    except BaseException as error:
        _report_aside(job, error)
        return True


def _report_aside(job: InFlightJob, error: BaseException) -> None:
    """Log in another thread: a log handler that hangs must not stop this one."""
    claim = job.claim
    event = Event(
        "a job's time-out could not be prepared",
        job_id=claim.id,
        job_type=claim.job_type,
        error=describe_exception(error).short,
    )
    # If no thread can be started, this is not logged; the end of the attempt shows it.
    with suppress(RuntimeError):
        threading.Thread(target=logger.error, args=(event,), daemon=True).start()
