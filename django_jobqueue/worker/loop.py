"""Loop: a thread that calls a step again and again. The only place that retries.

A step does its work and returns the delay before the next one; the loop knows nothing
else. Database errors are logged once, then retried with growing, jittered pauses.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator

from django.db import DatabaseError, InterfaceError

from ..backoff import growing_pauses
from ..database_errors import is_database_trouble, is_lock_wait
from ..log_events import Event
from ..storage.database import Database
from .health.log_queue import LogQueue
from .running.connections import close_database, open_database

logger = logging.getLogger("django_jobqueue.worker")

# Between two tries of a step that fails, before jitter.
FIRST_RETRY_PAUSE_SECONDS = 0.2
MAX_RETRY_PAUSE_SECONDS = 5.0
# Longer than any statement, connect or lock of SQLite may take.
STUCK_SECONDS = 60.0


class Loop:
    """One thread with its own database handle, which is reopened after an error."""

    def __init__(
        self,
        name: str,
        step: Callable[[Database], float],
        *,
        alias: str,
        log: logging.Logger | LogQueue = logger,
    ) -> None:
        self.name = name
        # A LogQueue where the loop must go on while the log cannot be written.
        self._log = log
        self.step = step
        self.alias = alias
        # Steps that failed in a row, and the pauses after them.
        self.failures = 0
        self._pauses: Iterator[float] = iter(())
        # For the watchdog: steps started so far, and whether it sleeps between two.
        self.steps = 0
        self.is_asleep = False
        # Monotonic: since when every step has failed (inf: the last one did not), and
        # whether that may be the fault of this process.
        self._failing_since = math.inf
        self._is_curable = True
        # Monotonic: when the last step started.
        self._began = math.inf
        # Set to start the next step at once.
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
        """End the loop after the current step."""
        self._stopping.set()
        self.wakeup.set()

    def join(self, timeout: float) -> bool:
        """Wait for the end; return whether it has ended."""
        if self._thread.ident is None:
            return True
        self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    @property
    def is_dead(self) -> bool:
        """True if its thread has ended without stop()."""
        has_ended = self._thread.ident is not None and not self._thread.is_alive()
        return has_ended and not self._stopping.is_set()

    def is_stuck(self, now: float) -> bool:
        """Return whether it has died or hangs in its step."""
        is_awake = self._thread.is_alive() and not self.is_asleep
        return self.is_dead or (is_awake and now - self._began > STUCK_SECONDS)

    def note_progress(self, now: float) -> None:
        """Note progress within the current step."""
        self._began = now
        self._failing_since = math.inf
        self.steps += 1

    @property
    def stalled_since(self) -> float:
        """The (monotonic) moment since when it made no progress: it has died, is in a
        step, or its steps fail; inf if it sleeps after a step that worked."""
        is_awake = self._thread.is_alive() and not self.is_asleep
        began = self._began if is_awake or self.is_dead else math.inf
        return min(began, self._failing_since)

    @property
    def is_curable(self) -> bool:
        """False if the database refuses its steps: a new process would get the same
        errors, and the unwritten ends of this one would be lost."""
        return self._is_curable or self.is_dead

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
                self._log.info(Event(f"{self.name} loop works again"))
            self.failures = 0
            self._failing_since, self._is_curable = math.inf, True
            return delay
        # Whatever a step raises, the loop goes on: a worker that is alive but idle is
        # worse than one that logs errors. Expected errors have no traceback.
        except Exception as error:
            self._failing_since = min(self._failing_since, self._began)
            self._is_curable = not (is_database_trouble(error) or is_lock_wait(error))
            self._report(error)
            self._close()
            return self._choose_retry_pause()

    def _choose_retry_pause(self) -> float:
        if self.failures == 0:
            self._pauses = growing_pauses(
                FIRST_RETRY_PAUSE_SECONDS, MAX_RETRY_PAUSE_SECONDS
            )
        self.failures += 1
        return next(self._pauses) * (0.5 + random.random() / 2)

    def _report(self, error: Exception) -> None:
        if not is_database_trouble(error):
            is_database = isinstance(error, DatabaseError | InterfaceError)
            text = "database error" if is_database else "error"
            self._log.exception(Event(f"{text} in the {self.name} loop"))
        elif self.failures == 0:
            reason = " ".join(str(error).split())[:200]
            self._log.warning(
                Event(f"{self.name} loop: database trouble, trying again", error=reason)
            )

    def _close(self) -> None:
        if self._db is None:
            return
        try:
            close_database(self._db)
        except Exception as error:
            self._log.debug(Event("closing a connection failed", error=error))
        self._db = None
