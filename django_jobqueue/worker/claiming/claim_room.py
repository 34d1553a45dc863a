"""ClaimRoom: how many jobs to claim now. Uses no database.

It follows the free slots, the jobs claimed ahead, the ends that are not written yet,
and the limits of --once and --max-jobs. Prefetch decides how many jobs to claim ahead:
short jobs hundreds at a time, long ones none, by the measured rate.
"""

from __future__ import annotations

import time

from ...storage.claims import Suspects
from ..finisher import MAX_UNWRITTEN_ENDINGS, Finisher
from ..running.thread_pool import ThreadPool
from .claim_env import ClaimEnv

# The longest time that claimed jobs should wait in the worker.
PREFETCH_SECONDS = 0.2
# Jobs that take longer are not claimed ahead at all.
SHORT_JOB_SECONDS = 0.05
# The shortest time between two readings of the rate.
SAMPLE_SECONDS = 0.02


class ClaimRoom:
    """The room for more jobs in one worker."""

    def __init__(self, env: ClaimEnv, slots: ThreadPool, finisher: Finisher) -> None:
        options = env.options
        self._slots = slots
        self._finisher = finisher
        self._batch_size = options.batch_size
        # A suspect may kill the process: no other job waits in the same process.
        is_isolated = env.suspects is Suspects.ONLY
        self._prefetch = Prefetch(batch_size=0 if is_isolated else options.batch_size)
        # How many jobs may still be claimed; None: any number.
        self._jobs_left = 1 if options.once else None
        if env.suspects is Suspects.INCLUDED and self._jobs_left is None:
            # A supervisor counts by itself; its children exclude suspects.
            self._jobs_left = options.max_jobs

    def count(self) -> int:
        """Return how many jobs to claim now; 0 to wait until it is worth a claim."""
        slots = self._slots
        self._prefetch.measure(
            time.monotonic(), ended=slots.ended, seconds=slots.seconds
        )
        if self.is_backed_up:
            return 0
        ahead, waiting = self._prefetch.ahead, slots.waiting
        slots.low_water = ahead // 2
        if ahead and waiting > ahead // 2:
            return 0
        room = slots.concurrency + ahead - waiting - slots.running
        if self._jobs_left is not None:
            room = min(room, self._jobs_left)
        return min(room, self._batch_size)

    @property
    def is_backed_up(self) -> bool:
        """Whether so many ends are unwritten that new jobs must wait."""
        return self._finisher.unwritten > MAX_UNWRITTEN_ENDINGS

    @property
    def is_used_up(self) -> bool:
        """Whether --once or --max-jobs allows no further claim."""
        return self._jobs_left is not None and self._jobs_left <= 0

    def take(self, count: int) -> None:
        """Note that this many jobs were claimed; negative: given back unstarted."""
        if self._jobs_left is not None:
            self._jobs_left -= count

    def slow_down(self) -> None:
        """Claim nothing ahead for a while: claimed jobs did not start in time."""
        self._prefetch.slow_down()


class Prefetch:
    """Measures how fast this worker ends jobs."""

    def __init__(self, *, batch_size: int) -> None:
        self._batch_size = batch_size
        # Jobs a second, and seconds a job.
        self._rate = 0.0
        self._mean = SHORT_JOB_SECONDS
        # The last reading: time, jobs ended, seconds they ran.
        self._last: tuple[float, int, float] | None = None

    def measure(self, now: float, *, ended: int, seconds: float) -> None:
        """Take a reading: jobs ended so far, and the seconds they ran in all."""
        if self._last is None:
            self._last = (now, ended, seconds)
            return
        last_now, last_ended, last_seconds = self._last
        if now - last_now < SAMPLE_SECONDS:
            return
        count = ended - last_ended
        self._rate = (self._rate + count / (now - last_now)) / 2
        if count:
            self._mean = (self._mean + (seconds - last_seconds) / count) / 2
        self._last = (now, ended, seconds)

    def slow_down(self) -> None:
        """Claim nothing ahead for a while: claimed jobs did not start in time."""
        self._rate = 0.0
        self._mean = 2 * SHORT_JOB_SECONDS

    @property
    def ahead(self) -> int:
        """How many jobs may be claimed beyond the free slots.

        Two batches: one runs while the next is on its way, else the slots are empty
        for a quarter of the time (benchmarks, drain).
        """
        if self._mean > SHORT_JOB_SECONDS:
            return 0
        return min(2 * self._batch_size, int(self._rate * PREFETCH_SECONDS))
