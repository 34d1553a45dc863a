"""Loop: a thread that asks its step how long to sleep; and the one place that retries.

A step does its work and returns the delay before the next; the loop knows nothing else.
Database trouble is logged once, then waited out with growing, jittered pauses.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable

from django.db import DatabaseError, InterfaceError

from ..lifecycle.database import Database
from ..outcomes import is_database_trouble
from ..signals import Event
from .connections import close_database, open_database

logger = logging.getLogger("django_jobqueue.worker")

LONGEST_PAUSE = 5.0
# Longer than any statement, connect or lock of SQLite may take.
STUCK = 60.0


class Loop:
    """One thread with a database handle of its own, opened anew after trouble."""

    def __init__(
        self, name: str, step: Callable[[Database], float], *, alias: str
    ) -> None:
        self.name = name
        self.step = step
        self.alias = alias
        self.failures = 0
        # For the watchdog: steps begun so far, and whether it sleeps between two.
        self.steps = 0
        self.is_asleep = False
        # For those who ask: the (monotonic) moment at which the last one began.
        self._began = math.inf
        # Set to make the loop look at once.
        self.wakeup = threading.Event()
        self._stopping = threading.Event()
        self._db: Database | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"jobqueue-{name}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self.wakeup.set()

    def stop(self) -> None:
        """Ask the loop to end after the step it is in."""
        self._stopping.set()
        self.wakeup.set()

    def join(self, timeout: float) -> bool:
        """Wait for the end; tell whether it has come."""
        if self._thread.ident is None:
            return True
        self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    @property
    def is_dead(self) -> bool:
        """True if its thread has ended although nobody asked it to."""
        has_ended = self._thread.ident is not None and not self._thread.is_alive()
        return has_ended and not self._stopping.is_set()

    def is_stuck(self, now: float) -> bool:
        """Tell whether it has died or does not come back from its step."""
        is_awake = self._thread.is_alive() and not self.is_asleep
        return self.is_dead or (is_awake and now - self._began > STUCK)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            # Cleared before the work: a wake-up during it is not lost.
            self.wakeup.clear()
            self._began = time.monotonic()
            self.steps += 1
            delay = self._try_step()
            if delay > 0:
                self.is_asleep = True
                self.wakeup.wait(delay)
                self.is_asleep = False
        self._close()

    def _try_step(self) -> float:
        try:
            if self._db is None:
                self._db = open_database(self.alias, name=self.name)
            delay = self.step(self._db)
            if self.failures:
                logger.info(Event(f"{self.name} loop works again"))
            self.failures = 0
            return delay
        # Whatever a step raises, the loop goes on: a worker that is alive but idle is
        # worse than a loud one. Expected trouble has no traceback.
        except Exception as error:
            self._report(error)
            self._close()
            self.failures += 1
            pause: float = min(LONGEST_PAUSE, 0.1 * 2 ** min(self.failures, 10))
            return pause * (0.5 + random.random() / 2)

    def _report(self, error: Exception) -> None:
        if not is_database_trouble(error):
            kind = isinstance(error, DatabaseError | InterfaceError)
            text = "database error" if kind else "error"
            logger.exception(Event(f"{text} in the {self.name} loop"))
        elif self.failures == 0:
            reason = " ".join(str(error).split())[:200]
            logger.warning(
                Event(f"{self.name} loop: database trouble, trying again", error=reason)
            )

    def _close(self) -> None:
        if self._db is None:
            return
        try:
            close_database(self._db)
        except Exception as error:
            logger.debug(Event("closing a connection failed", error=error))
        self._db = None
