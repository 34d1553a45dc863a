"""Link: a child's end of the connection with its supervisor.

The supervisor beats for the child and says through a pipe what it is to do; the child
shows on the board that it is alive. When the pipe breaks the supervisor is gone, nobody
beats any more, and the child ends at once.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from uuid import UUID

from .. import __version__
from ..lifecycle.beat import BeatReply
from ..options import Options
from ..signals import Event
from .board import LAYOUT, Board, Counts
from .heartbeat import find_patience

logger = logging.getLogger("django_jobqueue.worker")

TICK = 0.25
VARIABLE = "JOBQUEUE_CHILD"
VERSION = f"{__version__}/{LAYOUT}"

# Exit codes: the supervisor is gone; the child is of another version than it.
ORPHANED = 70
OUTDATED = 76

# What a supervisor says, one byte each.
DRAIN = b"d"
RETIRE = b"r"
HURRY = b"q"
STACKS = b"s"

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What a child is told at its start, in an environment variable."""

    worker_id: str
    supervisor: int
    board: int
    lifeline: int
    # How many places the board has: jobs that run at a time.
    places: int
    # Runs only jobs that have to run alone.
    is_isolated: bool
    version: str = VERSION

    def dump(self) -> str:
        return json.dumps(asdict(self))


def is_child() -> bool:
    """Tell whether a supervisor started this process, before take_spec()."""
    return VARIABLE in os.environ


def take_spec() -> ChildSpec | None:
    """Return what the supervisor said to this process, None if it has none.

    Taken out of the environment: programs that a handler starts are not children.
    """
    text = os.environ.pop(VARIABLE, None)
    if text is None:
        return None
    values = json.loads(text)
    if values.get("version") != VERSION:
        # The package was replaced under a running supervisor, which has to start anew.
        sys.exit(OUTDATED)
    spec = ChildSpec(**values)
    die_with(spec.supervisor)
    return spec


def die_with(supervisor: int) -> None:
    """End this process with its supervisor, where the system can see to that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have gone before the wish was uttered.
    if os.getppid() != supervisor:
        os._exit(ORPHANED)


def isolate(options: Options) -> Options:
    """Return the options of the child that runs suspects, one at a time."""
    name = None if options.name is None else f"{options.name} (alone)"
    return replace(options, concurrency=1, once=False, burst=False, name=name)


class Link:
    """Stands in the place of a Heartbeat where a supervisor beats."""

    def __init__(self, spec: ChildSpec, *, options: Options) -> None:
        self.worker_id = UUID(spec.worker_id)
        self.is_isolated = spec.is_isolated
        self.board = Board(spec.places, fd=spec.board)
        self.board.close_file()
        # Set once our row is committed: no claim before that.
        self.is_registered = threading.Event()
        self._lifeline = spec.lifeline
        self._patience = find_patience(options)
        self._ticks = 0
        self._seen = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="jobqueue-link", daemon=True
        )

    def start(
        self,
        *,
        read_counts: Callable[[int], Counts],
        on_beat: Callable[[], None],
        on_word: Callable[[bytes], None],
    ) -> None:
        """Begin to listen; `on_word` is called with what the supervisor says."""
        self._read_counts = read_counts
        self._on_beat = on_beat
        self._on_word = on_word
        self._thread.start()

    @property
    def reply(self) -> BeatReply:
        return self.board.reply

    def is_overdue(self) -> bool:
        """Tell whether others may soon take this worker for dead; see Heartbeat."""
        return time.monotonic() - self.board.confirmed > self._patience

    def finish(self) -> None:
        """Stop; the supervisor deletes our row when it has seen us end."""
        self._stopping.set()
        self.board.publish(self._read_counts(self._ticks))

    def join(self, timeout: float) -> bool:
        """Nothing is left to wait for; see Heartbeat."""
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._ticks += 1
            self.board.publish(self._read_counts(self._ticks))
            confirmed = self.board.confirmed
            if confirmed != self._seen:
                self._seen = confirmed
                self.is_registered.set()
                self._on_beat()
            readable, _, _ = select.select([self._lifeline], [], [], TICK)
            if readable:
                self._hear(os.read(self._lifeline, 64))

    def _hear(self, words: bytes) -> None:
        if not words:
            logger.critical(Event("the supervisor is gone; this process ends"))
            os._exit(ORPHANED)
        for code in words:
            self._on_word(bytes([code]))
