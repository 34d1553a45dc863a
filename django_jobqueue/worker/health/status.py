"""WorkerStatus: the state of a worker at one moment, and what it means for probes.

Made by the main thread of a supervisor, or of a worker without one, several times a
second. Also the clock for --idle-timeout. Pure: reads no clock and no database.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

from ...options import Options
from ..loop import STUCK_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """What the main thread knows about its worker."""

    # At least one process takes jobs.
    is_ready: bool = False
    # Draining, to end or (is_restarting) to start again.
    is_stopping: bool = False
    is_restarting: bool = False
    # Monotonic: the last confirmed beat; 0.0 before the first.
    confirmed: float = 0.0
    # Names of loops that have died or hang.
    stuck: tuple[str, ...] = ()
    # Descriptions of processes that take no jobs because their interpreter hangs.
    silent: tuple[str, ...] = ()
    # Descriptions of parts without progress; their process is replaced.
    stalled: tuple[str, ...] = ()
    # Processes that run jobs, running jobs, and jobs processed so far.
    processes: int = 0
    running: int = 0
    processed: int = 0

    def has_database(self, now: float, *, ttl: timedelta) -> bool:
        """Return whether a beat was confirmed within the TTL."""
        return self.confirmed > 0 and now - self.confirmed <= ttl.total_seconds()


def find_fatal_reasons(status: WorkerStatus, now: float, *, shown: float) -> list[str]:
    """Return why the process should be restarted; `shown`: when its main thread last
    passed its status on."""
    reasons = [f"the {name} loop is stuck" for name in status.stuck]
    if now - shown > STUCK_SECONDS:
        reasons.append(f"the main loop has been silent for {now - shown:.0f} s")
    return reasons


def find_unready_reasons(
    status: WorkerStatus, now: float, *, ttl: timedelta
) -> list[str]:
    """Return why no job can be expected to start here."""
    reasons = []
    if status.is_stopping:
        reasons.append("draining")
    elif not status.is_ready:
        reasons += status.silent or ("no process is ready yet",)
    if not status.confirmed:
        reasons.append("the database has not confirmed a beat yet")
    elif not status.has_database(now, ttl=ttl):
        age = now - status.confirmed
        reasons.append(f"the database confirmed the last beat {age:.0f} s ago")
    return [*reasons, *status.stalled]


class IdleClock:
    """Measures how long a worker has had nothing to do, for --idle-timeout."""

    def __init__(self, options: Options) -> None:
        self._limit = _seconds_of(options.idle_timeout)
        self._ttl = options.heartbeat_ttl
        self._since = math.inf
        self._processed = 0

    def is_over(self, status: WorkerStatus, now: float) -> bool:
        """Return whether the idle time-out is over.

        Time in which it is unknown whether there is work does not count: before the
        first process is ready, and while the database is away.
        """
        is_idle = (
            status.is_ready
            and not status.running
            and status.processed == self._processed
            and status.has_database(now, ttl=self._ttl)
        )
        self._processed = status.processed
        if not is_idle:
            self._since = now
        return now - self._since >= self._limit


def _seconds_of(limit: timedelta | None) -> float:
    return math.inf if limit is None else limit.total_seconds()
