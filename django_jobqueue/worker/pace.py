"""How many jobs to claim ahead of the free slots. Pure: no database, no clock.

Short jobs are claimed hundreds at a time, long ones exactly as many as there are free
slots: the number follows the measured rate.
"""

from __future__ import annotations

# Claimed jobs shall not wait in the worker longer than this.
AHEAD = 0.2
# Jobs that take longer are not claimed ahead at all.
SHORT = 0.05
SAMPLE = 0.02


class Pace:
    """Measures how fast this worker ends jobs."""

    def __init__(self, *, batch_size: int) -> None:
        self._batch_size = batch_size
        self._rate = 0.0
        self._mean = SHORT
        self._last: tuple[float, int, float] | None = None

    def measure(self, now: float, *, ended: int, seconds: float) -> None:
        """Take a reading: jobs ended so far, and the seconds they ran in all."""
        if self._last is None:
            self._last = (now, ended, seconds)
            return
        then, ended_then, seconds_then = self._last
        if now - then < SAMPLE:
            return
        count = ended - ended_then
        self._rate = (self._rate + count / (now - then)) / 2
        if count:
            self._mean = (self._mean + (seconds - seconds_then) / count) / 2
        self._last = (now, ended, seconds)

    def slow_down(self) -> None:
        """Claim nothing ahead for a while: claimed jobs could not start in time."""
        self._rate = 0.0
        self._mean = 2 * SHORT

    @property
    def ahead(self) -> int:
        """How many jobs may be held beyond the free slots.

        Two batches: one runs while the next is on its way, else the slots are empty
        for a quarter of the time (benchmarks, drain).
        """
        if self._mean > SHORT:
            return 0
        return min(2 * self._batch_size, int(self._rate * AHEAD))
