"""Scaling: how many processes the work asks for. Pure: no clock, no database.

Asked by the supervisor, twice a second. More processes only if jobs have waited for a
moment, since most backlogs are gone by then; fewer only if they would have been enough
for a while, since to start one costs more than to keep it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..options import Options

# Jobs have to wait for so long before a process is started for them.
UP_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class Trend:
    """Since when another number of processes would be better, and which at least."""

    since: float
    need: int


class Scaler:
    """Chooses the number of processes, and is slow to change its mind."""

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
        """Return how many processes there shall be, of `current` ones."""
        need = self.measure_need(running=running, backlog=backlog)
        self._trend = _follow(self._trend, current, need, now)
        if self._trend is None:
            return current
        is_up = self._trend.need > current
        if now - self._trend.since < (UP_AFTER if is_up else self._down_after):
            return current
        chosen, self._trend = self._trend.need, None
        return chosen

    def measure_need(self, *, running: int, backlog: int) -> int:
        """Return how many processes would have a slot for each of these jobs."""
        need = math.ceil((running + backlog) / self._concurrency)
        return max(self.fewest, min(need, self.most))


def _follow(trend: Trend | None, current: int, need: int, now: float) -> Trend | None:
    """Return the trend after one more look: it ends where the need turns round."""
    if need == current:
        return None
    if trend is None or (trend.need > current) != (need > current):
        return Trend(now, need)
    # What was enough, or too much, at every look of this time.
    nearest = min if need > current else max
    return Trend(trend.since, nearest(trend.need, need))
