"""Watchdog: ends a process whose loops are stuck. Alive but idle is worse than dead.

Counts its own ticks instead of seconds: a job that holds the interpreter's lock stops
the watchdog as well, and does not look like a dead loop.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence

from ..signals import Event
from .loop import Loop
from .stacks import format_stacks

logger = logging.getLogger("django_jobqueue.worker")

# Three ticks are longer than any statement, connect or lock of SQLite may take.
TICK = 20.0
PATIENCE = 3
# EX_TEMPFAIL: whoever started the worker shall start it again.
EXIT_CODE = 75


def end_process(loop: Loop) -> None:
    """Write the stacks of all threads and end at once; the jobs will be rescued."""
    text = "has died" if loop.is_dead else "is stuck"
    logger.critical(Event(f"the {loop.name} loop {text}; this process ends"))
    logger.critical("stacks of all threads\n%s", format_stacks())
    os._exit(EXIT_CODE)


class Watchdog:
    """A thread that looks whether every loop goes round."""

    def __init__(
        self,
        loops: Sequence[Loop],
        *,
        on_stuck: Callable[[Loop], None] = end_process,
    ) -> None:
        self._loops = loops
        self._on_stuck = on_stuck
        # Loop → (its steps at the last tick, ticks since they changed).
        self._seen: dict[str, tuple[int, int]] = {}
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(
            target=self._run, name="jobqueue-watchdog", daemon=True
        ).start()

    def stop(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(TICK):
            self.tick()

    def tick(self) -> None:
        """Look once at every loop."""
        for loop in self._loops:
            steps, ticks = self._seen.get(loop.name, (-1, 0))
            is_silent = loop.steps == steps and not loop.is_asleep
            ticks = ticks + 1 if is_silent else 0
            self._seen[loop.name] = (loop.steps, ticks)
            if loop.is_dead or ticks >= PATIENCE:
                self._on_stuck(loop)
