"""Heartbeat: writes every few seconds that this worker lives.

The reply of each beat says whether other workers are silent, for maintenance.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from .. import __version__
from ..options import Options
from ..storage.database import Database
from ..storage.worker_rows import (
    BeatReply,
    BeatValues,
    WorkerIdentity,
    beat,
    deregister,
)
from .health.log_queue import LogQueue
from .loop import Loop

# A beat must not wait until the log is written.
logger = LogQueue("django_jobqueue.worker")


class Heartbeat:
    """The loop that beats: the first to start and the last to stop."""

    def __init__(
        self,
        identity: WorkerIdentity,
        *,
        options: Options,
        read_beat_values: Callable[[], BeatValues],
        on_beat: Callable[[], None],
    ) -> None:
        self.loop = Loop("heartbeat", self.step, alias=options.database, log=logger)
        # Set once the row is committed: no claim before that.
        self.is_registered = threading.Event()
        self.reply = BeatReply(False, False)
        # Monotonic time taken before the last beat that was confirmed.
        self._confirmed = time.monotonic()
        self._fence_seconds = find_fence_seconds(options)
        self._identity = identity
        self._options = options
        self._read_beat_values = read_beat_values
        self._on_beat = on_beat
        self._is_last = False

    def step(self, db: Database) -> float:
        if self._is_last:
            deregister(db, self._identity.id)
            self.loop.stop()
            return 0.0
        ttl = self._options.heartbeat_ttl
        sent = time.monotonic()
        self.reply = beat(db, self._identity, self._read_beat_values(), ttl=ttl)
        self._confirmed = sent
        self.is_registered.set()
        self._on_beat()
        return self._options.heartbeat_interval.total_seconds()

    @property
    def confirmed(self) -> float:
        """The (monotonic) moment of the last confirmed beat, 0.0 before the first."""
        return self._confirmed if self.is_registered.is_set() else 0.0

    def is_overdue(self) -> bool:
        """Return whether others may soon take this worker for dead: then it starts
        nothing. No beat was confirmed until two beats before the TTL."""
        return time.monotonic() - self._confirmed > self._fence_seconds

    def finish(self) -> None:
        """Request the end: the row is deleted, then the loop stops."""
        self._is_last = True
        self.loop.wake()

    def join(self, timeout: float) -> bool:
        """Wait for the end; return whether it has ended."""
        return self.loop.join(timeout)


def find_fence_seconds(options: Options) -> float:
    """Return the seconds without a confirmed beat after which a worker starts nothing:
    two beats before others take it for dead."""
    beats = 2 * options.heartbeat_interval
    return max(options.heartbeat_ttl - beats, beats).total_seconds()


def read_memory(pid: int | None = None) -> int:
    """Return the resident memory of a process in bytes, 0 if it is unknown."""
    try:
        pages = int(Path(f"/proc/{pid or 'self'}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def make_identity(
    worker_id: UUID, options: Options, *, pid: int | None = None
) -> WorkerIdentity:
    """Describe this process, or the child with that pid."""
    excluded = dict.fromkeys(options.exclude_queues, 0)
    return WorkerIdentity(
        id=worker_id,
        host=socket.gethostname()[:255],
        pid=pid or os.getpid(),
        name=describe_worker(options, pid=pid),
        queues=excluded | dict(options.queues or ()),
        concurrency=options.concurrency,
        version=__version__,
    )


def describe_worker(options: Options, *, pid: int | None = None) -> str:
    return options.name or f"{socket.gethostname()}:{pid or os.getpid()}"[:200]


def describe_queues(options: Options) -> dict[str, str]:
    """Return the queues that a worker serves as fields of a log line."""
    served = [
        name if weight == 1 else f"{name}:{weight}"
        for name, weight in options.queues or ()
    ]
    fields = {"queues": ",".join(served) or "all"}
    if options.exclude_queues:
        fields["exclude_queues"] = ",".join(options.exclude_queues)
    return fields
