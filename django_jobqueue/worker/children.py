"""Children: the processes that a supervisor has started, as it sees them.

Started by exec with the supervisor's own command line, never by fork: nothing of an
open database or of a running thread is inherited.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

from ..lifecycle.beat import Pulse
from ..options import Options
from ..states import WorkerState
from .board import Board, Inside, Stage
from .heartbeat import read_memory
from .identity import make_identity
from .link import DRAIN, HURRY, RETIRE, STACKS, VARIABLE, ChildSpec
from .systemd import VARIABLES

# Kept from a child until it has handlers for them: a Ctrl-C goes to the whole group.
HELD_SIGNALS = {
    getattr(signal, name)
    for name in ("SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1")
    # Windows has only the first, and no supervisor.
    if hasattr(signal, name)
}


class Child:
    """One child process and the memory shared with it."""

    def __init__(
        self, options: Options, command: Sequence[str], *, is_isolated: bool = False
    ) -> None:
        self.id = uuid4()
        self.options = options
        self.is_isolated = is_isolated
        self.board = Board(options.concurrency)
        # True once it was told to end, or ended by us.
        self.is_leaving = False
        self.is_killed = False
        self.started = time.monotonic()
        self._ticks = 0
        self._ticked = self.started
        self._suspects_seen = 0
        lifeline, self._lifeline = os.pipe()
        spec = ChildSpec(
            worker_id=str(self.id),
            supervisor=os.getpid(),
            board=self.board.fd,
            lifeline=lifeline,
            places=options.concurrency,
            is_isolated=is_isolated,
        )
        with _held_signals():
            self.process = subprocess.Popen(
                command,
                env=_make_environment(spec),
                pass_fds=(self.board.fd, lifeline),
            )
        os.close(lifeline)
        self.board.close_file()
        self.identity = make_identity(self.id, options, pid=self.process.pid)

    @property
    def stage(self) -> Stage:
        return self.board.stage

    @property
    def memory(self) -> int:
        return read_memory(self.process.pid)

    def read_pulse(self) -> Pulse:
        counts = self.board.counts
        is_leaving = self.is_leaving or self.stage >= Stage.DRAINING
        return Pulse(
            state=WorkerState.STOPPING if is_leaving else WorkerState.RUNNING,
            processed=counts.processed,
            failed=counts.failed,
            running=counts.running,
            memory=self.memory,
        )

    def list_overruns(self, now: float) -> list[Inside]:
        """Return the attempts that have ignored the word to stop for too long."""
        return [
            inside
            for inside in self.board.read_inside()
            if inside.limit < now and not inside.is_expelled
        ]

    def measure_silence(self, now: float) -> float:
        """Return the seconds since it last showed that its interpreter runs."""
        ticks = self.board.counts.ticks
        if ticks != self._ticks:
            self._ticks, self._ticked = ticks, now
        return now - self._ticked

    def has_seen_suspects(self) -> bool:
        """Tell whether it has seen jobs that must run alone, since the last look."""
        seen, self._suspects_seen = self._suspects_seen, self.board.suspects_seen
        return seen != self._suspects_seen

    def drain(self) -> None:
        """Let it end its jobs within the shutdown timeout."""
        self.is_leaving = True
        if self.stage is Stage.STARTING:
            # It has nothing yet, and does not listen.
            self.is_killed = True
            self._send(signal.SIGTERM)
        else:
            self._tell(DRAIN)

    def retire(self) -> None:
        """Let it end its jobs in their own time."""
        if self.stage is Stage.STARTING:
            self.drain()
        else:
            self.is_leaving = True
            self._tell(RETIRE)

    def hurry(self) -> None:
        if self.stage is Stage.STARTING:
            self.kill()
        else:
            self.is_leaving = True
            self._tell(HURRY)

    def show_stacks(self) -> None:
        self._tell(STACKS)

    def kill(self) -> None:
        """End it at once, for a reason that is not its jobs' fault."""
        self.is_leaving = self.is_killed = True
        self._send(signal.SIGKILL)

    def close(self) -> None:
        """Give back the pipe to a process that has ended. Not the board: the thread
        that beats may look at it at this moment."""
        os.close(self._lifeline)

    def _tell(self, word: bytes) -> None:
        # It may have ended at this moment.
        with suppress(BrokenPipeError):
            os.write(self._lifeline, word)

    def _send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


def _make_environment(spec: ChildSpec) -> dict[str, str]:
    # A service manager has started the supervisor, and wants to hear from it alone.
    inherited = {
        name: text for name, text in os.environ.items() if name not in VARIABLES
    }
    return inherited | {VARIABLE: spec.dump()}


@contextmanager
def _held_signals() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def describe_exit(code: int) -> str:
    """Say in words how a process ended, from its (negative: signal) exit code."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
