"""SupervisedHeartbeat: a child's end of the connection with its supervisor.

The supervisor beats for the child and sends it commands through a pipe; the child shows
in the shared memory that it is alive. When the pipe breaks, the supervisor is gone and
no beat will come: the child ends at once.
"""

from __future__ import annotations

import ctypes
import errno
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

from ... import __version__
from ...log_events import Event
from ...options import Options
from ...storage.worker_rows import BeatReply
from ..commands import Command, UnknownCommandError, decode_command
from ..health.bounded import run_bounded
from ..heartbeat import find_fence_seconds
from .memory_layout import LAYOUT_VERSION
from .memory_values import Counts
from .shared_memory import SharedMemory

logger = logging.getLogger("django_jobqueue.worker")

TICK_SECONDS = 0.25
CHILD_VARIABLE = "JOBQUEUE_CHILD"
VERSION = f"{__version__}/{LAYOUT_VERSION}"

# Exit codes: the supervisor is gone; the thread that reads its commands has failed; the
# child runs another version of the package.
EXIT_ORPHANED = 70
EXIT_UNLINKED = 71
EXIT_OUTDATED = 76

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What a supervisor passes to a child in an environment variable."""

    worker_id: str
    supervisor: int
    shared_memory: int
    command_pipe: int
    # How many places the shared memory has: jobs that run at a time.
    places: int
    # Runs only jobs that have to run alone.
    is_isolated: bool
    version: str = VERSION

    def dump(self) -> str:
        return json.dumps(asdict(self))


def is_child() -> bool:
    """Return whether a supervisor started this process. Call it before take_spec()."""
    return CHILD_VARIABLE in os.environ


def take_spec() -> ChildSpec | None:
    """Return the spec of this process; None if no supervisor started it.

    Removed from the environment: programs that a handler starts are not children.
    """
    text = os.environ.pop(CHILD_VARIABLE, None)
    if text is None:
        return None
    values = json.loads(text)
    if values.get("version") != VERSION:
        # The package was replaced under a running supervisor, which must restart.
        sys.exit(EXIT_OUTDATED)
    spec = ChildSpec(**values)
    end_with_parent(spec.supervisor)
    return spec


def end_with_parent(supervisor: int) -> None:
    """Make the kernel end this process with its supervisor, where it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The supervisor may have died before prctl took effect.
    if os.getppid() != supervisor:
        os._exit(EXIT_ORPHANED)


def isolate(options: Options) -> Options:
    """Return the options of the child that runs suspects one at a time."""
    name = None if options.name is None else f"{options.name} (alone)"
    return replace(options, concurrency=1, once=False, burst=False, name=name)


class SupervisedHeartbeat:
    """Takes the place of a Heartbeat in a child: its supervisor beats."""

    def __init__(self, spec: ChildSpec, *, options: Options) -> None:
        self.worker_id = UUID(spec.worker_id)
        self.is_isolated = spec.is_isolated
        self.shared_memory = SharedMemory(spec.places, fd=spec.shared_memory)
        self.shared_memory.close_file()
        # Set once our row is committed: no claim before that.
        self.is_registered = threading.Event()
        self._command_pipe = spec.command_pipe
        self._pipe = os.fstat(spec.command_pipe).st_ino
        self._fence_seconds = find_fence_seconds(options)
        self._ticks = 0
        self._seen = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="jobqueue-supervised", daemon=True
        )

    def start(
        self,
        *,
        read_counts: Callable[[int], Counts],
        on_beat: Callable[[], None],
        on_command: Callable[[Command], None],
    ) -> None:
        """Begin to listen; each command of the supervisor goes to `on_command`."""
        self._read_counts = read_counts
        self._on_beat = on_beat
        self._on_command = on_command
        self._thread.start()

    @property
    def reply(self) -> BeatReply:
        return self.shared_memory.reply

    @property
    def confirmed(self) -> float:
        """The (monotonic) moment of the last confirmed beat; see Heartbeat."""
        return self.shared_memory.confirmed

    def is_overdue(self) -> bool:
        """Return whether others may soon take this worker for dead; see Heartbeat."""
        return time.monotonic() - self.shared_memory.confirmed > self._fence_seconds

    def finish(self) -> None:
        """Stop; the supervisor deletes our row after this process has ended."""
        self._stopping.set()
        self.shared_memory.publish(self._read_counts(self._ticks))

    def join(self, timeout: float) -> bool:
        """Return at once, there is nothing to wait for; see Heartbeat."""
        return True

    def _run(self) -> None:
        try:
            self._listen()
        except BaseException:
            # For example, a job has closed the pipe. No log line: a descriptor that
            # logging uses may belong to a database connection now.
            if not self._stopping.is_set():
                os._exit(EXIT_UNLINKED)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            self._ticks += 1
            self.shared_memory.publish(self._read_counts(self._ticks))
            confirmed = self.shared_memory.confirmed
            if confirmed != self._seen:
                self._seen = confirmed
                self.is_registered.set()
                self._on_beat()
            self._check_pipe()
            readable, _, _ = select.select([self._command_pipe], [], [], TICK_SECONDS)
            if readable:
                # Again: the end of file must come from our pipe, not from a file that
                # got its descriptor during the wait.
                self._check_pipe()
                self._receive(os.read(self._command_pipe, 64))

    def _check_pipe(self) -> None:
        if os.fstat(self._command_pipe).st_ino != self._pipe:
            raise OSError(errno.EBADF, "the descriptor is no longer our pipe")

    def _receive(self, data: bytes) -> None:
        if not data:
            text = "the supervisor is gone; this process ends"
            run_bounded(lambda: logger.critical(Event(text)))
            os._exit(EXIT_ORPHANED)
        for code in data:
            try:
                command = decode_command(bytes([code]))
            except UnknownCommandError as error:
                _report_unknown_command(error)
            else:
                self._on_command(command)


def _report_unknown_command(error: UnknownCommandError) -> None:
    event = Event("the supervisor sent an unknown command", error=str(error))
    run_bounded(lambda: logger.error(event))
