"""Watchdog: ends a process whose loops are stuck. Alive but idle is worse than dead.

The last resort, behind progress.py: it checks every loop and waits for no lock. It
counts its own ticks instead of seconds: a job that holds the interpreter's lock stops
the watchdog as well, and does not look like a dead loop.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...log_events import Event
from .bounded import run_bounded

logger = logging.getLogger("django_jobqueue.worker")

# Three ticks are longer than any statement, connect or lock of SQLite may take.
TICK_SECONDS = 20.0
STUCK_TICKS = 3
# EX_TEMPFAIL: the service manager should start the worker again.
EXIT_CODE = 75


class WatchedLoop(Protocol):
    """What the watchdog checks: a Loop, or the main loop of a supervisor."""

    @property
    def name(self) -> str: ...

    @property
    def steps(self) -> int: ...

    @property
    def is_asleep(self) -> bool: ...

    @property
    def is_dead(self) -> bool: ...


def end_stuck(loop: WatchedLoop) -> None:
    """End this process because one of its loops is stuck."""
    text = "has died" if loop.is_dead else "is stuck"
    end_process(f"the {loop.name} loop {text}")


def end_process(reason: str) -> None:
    """Write the stacks of all threads and end at once; the jobs will be rescued.

    Nothing prevents the end: if the log cannot be written, the stacks go to stderr; if
    that cannot be written either, they are lost.
    """
    stacks = format_stacks()

    def log() -> None:
        logger.critical(Event(f"{reason}; this process ends"))
        logger.critical("stacks of all threads\n%s", stacks)

    if not run_bounded(log):
        text = f"{reason}; this process ends\n{stacks}\n"
        run_bounded(lambda: _write_raw(text))
    os._exit(EXIT_CODE)


def _write_raw(text: str) -> None:
    # Not by sys.stderr, which has a lock, too.
    os.write(2, text.encode(errors="backslashreplace"))


def format_stacks() -> str:
    """Return the stack of every thread of this process, the newest call last.

    Not by faulthandler: with Python 3.13.0 its dump of a process with many threads
    stopped half way.
    """
    frames = sys._current_frames()
    parts = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is not None:
            lines = "".join(traceback.format_stack(frame))
            parts.append(f"Thread {thread.name}:\n{lines}")
    return "\n".join(parts)


class Watchdog:
    """A thread that checks whether every loop goes round."""

    def __init__(
        self,
        loops: Sequence[WatchedLoop],
        *,
        on_stuck: Callable[[Any], None] = end_stuck,
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
        while not self._stopping.wait(TICK_SECONDS):
            self.tick()

    def tick(self) -> None:
        """Check every loop once."""
        for loop in self._loops:
            steps, ticks = self._seen.get(loop.name, (-1, 0))
            is_silent = loop.steps == steps and not loop.is_asleep
            ticks = ticks + 1 if is_silent else 0
            self._seen[loop.name] = (loop.steps, ticks)
            if loop.is_dead or ticks >= STUCK_TICKS:
                self._on_stuck(loop)
