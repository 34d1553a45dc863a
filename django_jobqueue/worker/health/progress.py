"""Health: checks whether a worker makes progress, not only whether its threads live.

A thread checks the loops and the locks of the log handlers every second; it never waits
without a limit. A stall goes to the supervisor through the shared memory, or ends a
process that has none. See docs/design/decisions/0015-health-is-progress.md.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..loop import Loop
from ..supervision.memory_values import BROKEN_LOG, Stall

TICK_SECONDS = 1.0
# Without progress for so long, while the database answers, a part is stalled. Longer
# than SQLite waits for a lock.
UNWELL_SECONDS = 35.0
# After so long, a process without a supervisor ends.
END_PROCESS_SECONDS = 50.0
# How long to try the lock of a log handler: longer than one line takes.
LOCK_WAIT_SECONDS = 1.0
# If a check comes this many ticks late, a job held the interpreter or the process was
# stopped: the loops could not run either.
LATE_TICKS = 5


class Part(Protocol):
    """What Health checks: a Loop, or another part that has to make progress."""

    @property
    def name(self) -> str: ...

    @property
    def stalled_since(self) -> float:
        """The (monotonic) moment since which it has made no progress, or inf."""

    @property
    def is_curable(self) -> bool: ...


class Health:
    """Checks the parts of one worker."""

    def __init__(
        self,
        loops: Sequence[Part],
        *,
        interval: float,
        read_confirmed: Callable[[], float],
        on_check: Callable[[Stall | None], None],
        counters: Mapping[Loop, Callable[[], int]] | None = None,
    ) -> None:
        self.stall: Stall | None = None
        self._loops = loops
        # A longer gap between two confirmed beats means that the database was away.
        self._longest_gap = 2 * interval + 5.0
        self._read_confirmed = read_confirmed
        self._on_check = on_check
        # What a loop has done: a step with many slow receivers is long, not stuck.
        self._counters = dict(counters or {})
        self._counts = {loop: read() for loop, read in self._counters.items()}
        self._confirmed = 0.0
        # Monotonic: time before this moment does not count.
        self._counted_from = math.inf
        # id of a log handler's lock → since when it cannot be acquired.
        self._locked: dict[int, float] = {}
        # Monotonic: since when log lines cannot be written.
        self._log_broken_since: float | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="jobqueue-health", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def note_broken_log(self) -> None:
        """Note that log lines can no longer be written. Safe in any thread."""
        self._log_broken_since = time.monotonic()
        self.stall = self._find_broken_log()
        self._on_check(self.stall)

    def _run(self) -> None:
        before = time.monotonic()
        while not self._stopping.wait(TICK_SECONDS):
            now = time.monotonic()
            if now - before > LATE_TICKS * TICK_SECONDS:
                self.forgive(now)
            self.check(now)
            before = time.monotonic()

    def forgive(self, now: float) -> None:
        """Count from now on: nothing could make progress until now."""
        self._counted_from = now
        self._locked.clear()

    def check(self, now: float) -> None:
        """Check everything once, and pass the result on."""
        confirmed = self._read_confirmed()
        if confirmed - self._confirmed > self._longest_gap:
            self._counted_from = confirmed
        self._confirmed = confirmed
        for loop, read in self._counters.items():
            before, self._counts[loop] = self._counts[loop], read()
            if before != self._counts[loop]:
                loop.note_progress(now)
        # The lock first: a loop that waits for a log handler is not the cause.
        self.stall = (
            self._find_lock(now)
            or self._find_broken_log()
            or self._find_loop(confirmed)
        )
        self._on_check(self.stall)

    def _find_loop(self, confirmed: float) -> Stall | None:
        """Return the part that has made no progress for longest. `confirmed` proves
        that the database answered then."""
        stalled = [
            (max(loop.stalled_since, self._counted_from), loop) for loop in self._loops
        ]
        since, loop = min(stalled, key=lambda each: each[0])
        if confirmed - since < UNWELL_SECONDS:
            return None
        return Stall(part=loop.name, since=since, is_curable=loop.is_curable)

    def _find_broken_log(self) -> Stall | None:
        if self._log_broken_since is None:
            return None
        since = self._log_broken_since
        return Stall(part=BROKEN_LOG, since=since, is_curable=True)

    def _find_lock(self, now: float) -> Stall | None:
        locked = {}
        for lock in _list_log_locks():
            if not _can_acquire(lock):
                locked[id(lock)] = self._locked.get(id(lock), now)
        self._locked = locked
        since = min(locked.values(), default=math.inf)
        if now - since < UNWELL_SECONDS:
            return None
        return Stall(part="logging", since=since, is_curable=True)


def _list_log_locks() -> Iterator[Any]:
    """Yield the locks that a log line may need."""
    # Taken when a logger is asked for its level for the first time.
    yield getattr(logging, "_lock", None)
    loggers = list(logging.Logger.manager.loggerDict.values())
    seen = set()
    for logger in [logging.getLogger(), *loggers]:
        for handler in list(getattr(logger, "handlers", ())):
            if id(handler) not in seen:
                seen.add(id(handler))
                yield handler.lock


def _can_acquire(lock: Any) -> bool:
    if lock is None:
        return True
    try:
        is_acquired = lock.acquire(timeout=LOCK_WAIT_SECONDS)
    # A lock of another kind, whose acquire() has no time-out.
    except TypeError:
        return True
    if is_acquired:
        lock.release()
    return bool(is_acquired)
