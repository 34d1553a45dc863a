"""Heartbeat: says every few seconds that this worker lives, and hears who does not."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..lifecycle.beat import BeatReply, Pulse, WorkerIdentity, beat, deregister
from ..lifecycle.database import Database
from ..options import Options
from .loop import Loop


class Heartbeat:
    """The loop that beats: the first to start and the last to stop."""

    def __init__(
        self,
        identity: WorkerIdentity,
        *,
        options: Options,
        read_pulse: Callable[[], Pulse],
        on_beat: Callable[[], None],
    ) -> None:
        self.loop = Loop("heartbeat", self.step, alias=options.database)
        # Set once the row is committed: no claim before that.
        self.is_registered = threading.Event()
        self.reply = BeatReply(False, False)
        # Monotonic time taken before the last beat that was confirmed.
        self._confirmed = time.monotonic()
        beats = 2 * options.heartbeat_interval
        self._limit = max(options.heartbeat_ttl - beats, beats).total_seconds()
        self._identity = identity
        self._options = options
        self._read_pulse = read_pulse
        self._on_beat = on_beat
        self._is_last = False

    def step(self, db: Database) -> float:
        if self._is_last:
            deregister(db, self._identity.id)
            self.loop.stop()
            return 0.0
        ttl = self._options.heartbeat_ttl
        sent = time.monotonic()
        self.reply = beat(db, self._identity, self._read_pulse(), ttl=ttl)
        self._confirmed = sent
        self.is_registered.set()
        self._on_beat()
        return self._options.heartbeat_interval.total_seconds()

    def is_overdue(self) -> bool:
        """Tell whether others may soon take this worker for dead, so that it must not
        begin anything: no beat was confirmed until two beats before the TTL."""
        return time.monotonic() - self._confirmed > self._limit

    def finish(self, timeout: float) -> bool:
        """Delete the row and stop; tell whether that was done in time."""
        self._is_last = True
        self.loop.wake()
        is_done = self.loop.join(timeout)
        self.loop.stop()
        return is_done


def read_memory() -> int:
    """Return the resident memory of this process in bytes, 0 where nobody knows."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
