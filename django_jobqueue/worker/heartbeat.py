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
        self._patience = find_patience(options)
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

    @property
    def confirmed(self) -> float:
        """The (monotonic) moment of the last confirmed beat, 0.0 before the first."""
        return self._confirmed if self.is_registered.is_set() else 0.0

    def is_overdue(self) -> bool:
        """Tell whether others may soon take this worker for dead, so that it must not
        begin anything: no beat was confirmed until two beats before the TTL."""
        return time.monotonic() - self._confirmed > self._patience

    def finish(self) -> None:
        """Ask for the end: the row is deleted, then the loop stops."""
        self._is_last = True
        self.loop.wake()

    def join(self, timeout: float) -> bool:
        """Wait for the end; tell whether it has come."""
        return self.loop.join(timeout)


def find_patience(options: Options) -> float:
    """Return the seconds without a confirmed beat after which a worker begins nothing:
    two beats before others take it for dead."""
    beats = 2 * options.heartbeat_interval
    return max(options.heartbeat_ttl - beats, beats).total_seconds()


def read_memory(pid: int | None = None) -> int:
    """Return the resident memory of a process in bytes, 0 where nobody knows."""
    try:
        pages = int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
