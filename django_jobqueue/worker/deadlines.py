"""Deadlines: tells attempts that their time is up.

Coroutines end themselves; of those the supervisor is told only when to lose patience.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from .held import HeldJob, HeldJobs

TICK = 0.25


class Deadlines:
    """A thread that looks at the clock for all attempts of a worker."""

    def __init__(
        self, held: HeldJobs, *, find_delay: Callable[[HeldJob], float | None]
    ) -> None:
        self._held = held
        # How long a timed-out job waits for its next attempt: the supervisor may have
        # to write it without us.
        self._find_delay = find_delay
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(
            target=self._run, name="jobqueue-deadlines", daemon=True
        ).start()

    def stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(self.check()):
            pass

    def check(self) -> float:
        """Interrupt what is overdue; return the seconds until the next look."""
        now = time.monotonic()
        nearest = now + TICK
        for held in self._held.list():
            deadline = held.deadline
            if deadline is None:
                continue
            if deadline <= now and held.interruption is None:
                held.overrun(retry_delay=self._find_delay(held))
            elif deadline < nearest:
                nearest = deadline
        return max(0.005, nearest - now)
