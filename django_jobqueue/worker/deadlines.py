"""Deadlines: tells attempts that their time is up. Coroutines see to it themselves."""

from __future__ import annotations

import threading
import time

from ..exceptions import JobTimeout
from .held import HeldJobs

TICK = 0.25


class Deadlines:
    """A thread that looks at the clock for all sync attempts of a worker."""

    def __init__(self, held: HeldJobs) -> None:
        self._held = held
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
            if deadline <= now:
                held.interrupt(JobTimeout)
            elif deadline < nearest:
                nearest = deadline
        return max(0.005, nearest - now)
