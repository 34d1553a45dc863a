"""How many processes the work needs.

PoolScaling, called by the supervisor, reads the numbers twice a second and fits the
pool. Scaler chooses, without a clock or a database. It adds processes only after jobs
have waited for a moment, because most backlogs are gone by then. It removes processes
only if fewer have been enough for a while: starting one costs more than keeping it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...log_events import Event
from ...options import Options
from .process_pool import ProcessPool
from .supervisor_db import SupervisorDb, logger

SCALING_INTERVAL_SECONDS = 0.5
# A backlog must last so long before a process is started for it.
UP_AFTER_SECONDS = 1.0


class PoolScaling:
    """Fits the number of children to the work."""

    def __init__(
        self, options: Options, pool: ProcessPool, supervisor_db: SupervisorDb
    ) -> None:
        self._scaler = Scaler(options)
        self._pool = pool
        self._supervisor_db = supervisor_db
        # Monotonic.
        self._next_at = 0.0

    def step(self, now: float) -> None:
        if now < self._next_at:
            return
        self._next_at = now + SCALING_INTERVAL_SECONDS
        size, running = self._pool.size, self._pool.count_running()
        measured, backlog = self._supervisor_db.backlog
        if running:
            # The next call reads this count.
            self._supervisor_db.request_backlog(self._scaler.limit)
            if now - measured > 3 * SCALING_INTERVAL_SECONDS:
                return
        else:
            # While nothing runs, nothing waits.
            backlog = 0
        count = self._scaler.choose(size, running=running, backlog=backlog, now=now)
        if count != size:
            fields = {"processes": count, "running": running, "backlog": backlog}
            logger.info(Event("scaling", **fields))
            self._pool.fit(count)


@dataclass(frozen=True, slots=True)
class Trend:
    """Since when another number of processes would be better, and which at least."""

    since: float
    need: int


class Scaler:
    """Chooses the number of processes, with a delay before each change."""

    def __init__(self, options: Options) -> None:
        self.fewest, self.most = options.process_bounds
        self._concurrency = options.concurrency
        self._down_after = options.scale_down_after.total_seconds()
        self._trend: Trend | None = None

    @property
    def limit(self) -> int:
        """The backlog beyond which a larger one makes no difference."""
        return self.most * self._concurrency

    def choose(self, current: int, *, running: int, backlog: int, now: float) -> int:
        """Return the number of processes to run; `current` of them run now."""
        need = self.measure_need(running=running, backlog=backlog)
        self._trend = _follow(self._trend, current, need, now)
        if self._trend is None:
            return current
        is_up = self._trend.need > current
        if now - self._trend.since < (UP_AFTER_SECONDS if is_up else self._down_after):
            return current
        chosen, self._trend = self._trend.need, None
        return chosen

    def measure_need(self, *, running: int, backlog: int) -> int:
        """Return how many processes would have a slot for each of these jobs."""
        need = math.ceil((running + backlog) / self._concurrency)
        return max(self.fewest, min(need, self.most))


def _follow(trend: Trend | None, current: int, need: int, now: float) -> Trend | None:
    """Return the trend after one more call; it ends where the need turns round."""
    if need == current:
        return None
    if trend is None or (trend.need > current) != (need > current):
        return Trend(now, need)
    # The number that was needed at every call of this time.
    nearest = min if need > current else max
    return Trend(trend.since, nearest(trend.need, need))
