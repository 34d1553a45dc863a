"""Child: a process that runs jobs, as its supervisor sees it.

Started by exec with the supervisor's own command line, never by fork: it inherits no
database connection and no thread. It shows its state in the shared memory and receives
commands through a pipe.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

from ...options import Options
from ...states import WorkerState
from ...storage.worker_rows import BeatValues
from ..commands import Command, encode_command
from ..health.systemd import NOTIFY_VARIABLES
from ..heartbeat import make_identity, read_memory
from .memory_values import RunningAttempt, Stage
from .shared_memory import SharedMemory
from .supervised_heartbeat import CHILD_VARIABLE, ChildSpec

# Blocked in a child until it has installed its handlers.
BLOCKED_SIGNALS = {
    getattr(signal, name)
    for name in ("SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1")
    # Windows has only the first, and no supervisor.
    if hasattr(signal, name)
}

# On top of the time that a child has to drain.
DRAIN_MARGIN_SECONDS = 5.0
# A child that retires is killed after so long without a running job or a write.
QUIET_SECONDS = 30.0
# How long a start may take once its heartbeat row is committed.
START_SECONDS = 300.0
# A longer gap between two checks means that the supervisor itself was stopped.
LONGEST_GAP_SECONDS = 2.0


class Child:
    """One child process and the memory shared with it."""

    def __init__(
        self, options: Options, command: Sequence[str], *, is_isolated: bool = False
    ) -> None:
        self.id = uuid4()
        self.options = options
        self.is_isolated = is_isolated
        self.shared_memory = SharedMemory(options.concurrency)
        # True once it was asked to end, or killed.
        self.is_leaving = False
        self.is_killed = False
        # What its attempts are charged with if it is killed; None: nothing.
        self.blame: str | None = None
        # Monotonic: when it is killed at the latest.
        self.kill_at = math.inf
        # Monotonic: since when a retiring child has done nothing.
        self._quiet_since: float | None = None
        self._processed = 0
        self._registered: float | None = None
        self.started = time.monotonic()
        self._ticks = 0
        self._ticked = self._measured = self.started
        self._suspects_seen = 0
        self.process = self._spawn(command)
        self.identity = make_identity(self.id, options, pid=self.process.pid)

    def _spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the process. Raises OSError, and leaves nothing open, if the system
        cannot."""
        try:
            command_pipe, self._command_pipe = os.pipe()
        except OSError:
            self.shared_memory.close_file()
            raise
        spec = ChildSpec(
            worker_id=str(self.id),
            supervisor=os.getpid(),
            shared_memory=self.shared_memory.fd,
            command_pipe=command_pipe,
            places=self.options.concurrency,
            is_isolated=self.is_isolated,
        )
        try:
            with _blocked_signals():
                return subprocess.Popen(
                    command,
                    env=_make_environment(spec),
                    pass_fds=(self.shared_memory.fd, command_pipe),
                    # A job that signals its process group (`kill 0`) must not reach the
                    # supervisor. A new group alone is not enough: a job that reads the
                    # terminal (`breakpoint()`) would be stopped.
                    start_new_session=True,
                )
        except OSError:
            os.close(self._command_pipe)
            raise
        finally:
            os.close(command_pipe)
            self.shared_memory.close_file()

    @property
    def stage(self) -> Stage:
        return self.shared_memory.stage

    @property
    def has_exited(self) -> bool:
        """True if its process has ended. Safe in any thread."""
        return self.process.poll() is not None

    @property
    def is_stalled(self) -> bool:
        """True if it makes no progress and a new process may."""
        stall = self.shared_memory.stall
        return stall is not None and stall.is_curable

    @property
    def memory(self) -> int:
        return read_memory(self.process.pid)

    def read_beat_values(self) -> BeatValues:
        counts = self.shared_memory.counts
        is_leaving = self.is_leaving or self.stage >= Stage.DRAINING
        return BeatValues(
            state=WorkerState.STOPPING if is_leaving else WorkerState.RUNNING,
            processed=counts.processed,
            failed=counts.failed,
            running=counts.running,
            memory=self.memory,
        )

    def list_overruns(self, now: float) -> list[RunningAttempt]:
        """Return the attempts that have not stopped by their limit."""
        return [
            attempt
            for attempt in self.shared_memory.read_places()
            if attempt.limit < now and not attempt.is_ended_by_supervisor
        ]

    def measure_silence(self, now: float) -> float:
        """Return the seconds since its last tick, a sign that its interpreter runs.

        Time in which the supervisor itself did not run does not count: all processes
        were stopped.
        """
        gap, self._measured = now - self._measured, now
        if gap > LONGEST_GAP_SECONDS:
            self._ticked += gap
        ticks = self.shared_memory.counts.ticks
        if ticks != self._ticks:
            self._ticks, self._ticked = ticks, now
        return now - self._ticked

    def has_seen_suspects(self) -> bool:
        """Return whether it has seen jobs that must run alone since the last call."""
        seen, self._suspects_seen = (
            self._suspects_seen,
            self.shared_memory.suspects_seen,
        )
        return seen != self._suspects_seen

    def is_overdue(self, now: float) -> bool:
        """Return whether its time to end, or to start, is over."""
        if self._registered is None and self.shared_memory.confirmed:
            # Before that it waits for the database.
            self._registered = now
        if self.stage is Stage.STARTING and self._registered is not None:
            return now >= min(self.kill_at, self._registered + START_SECONDS)
        return now >= self.kill_at or self._is_quiet(now)

    def _is_quiet(self, now: float) -> bool:
        if self._quiet_since is None:
            return False
        processed = self.shared_memory.counts.processed
        attempts = [
            attempt
            for attempt in self.shared_memory.read_places()
            if not attempt.is_ended_by_supervisor
        ]
        if attempts or processed != self._processed:
            self._processed, self._quiet_since = processed, now
        return now - self._quiet_since > QUIET_SECONDS

    def drain(self, *, within: float | None = None) -> None:
        """Let it end its jobs within the shutdown time-out, or so many seconds."""
        self.is_leaving = True
        if within is None:
            within = (
                self.options.shutdown_timeout.total_seconds() + DRAIN_MARGIN_SECONDS
            )
        self.kill_at = min(self.kill_at, time.monotonic() + within)
        if self.stage is Stage.STARTING:
            # It has no jobs yet, and does not read the pipe.
            self._send_signal(signal.SIGTERM)
        else:
            self._send_command(Command.DRAIN)

    def retire(self) -> None:
        """Let it end its jobs without a time limit."""
        if self.stage is Stage.STARTING:
            self.drain()
        else:
            self.is_leaving = True
            self._quiet_since = time.monotonic()
            self._send_command(Command.RETIRE)

    def stop_now(self) -> None:
        """Let it give its jobs back and end."""
        if self.stage is Stage.STARTING:
            self.kill()
        else:
            self.is_leaving = True
            self.kill_at = min(self.kill_at, time.monotonic() + DRAIN_MARGIN_SECONDS)
            self._send_command(Command.STOP_NOW)

    def show_stacks(self) -> None:
        self._send_command(Command.SHOW_STACKS)

    def suspend(self) -> None:
        self._send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it, for a reason that is not the fault of its jobs."""
        self.is_leaving = self.is_killed = True
        self._send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Close the pipe to a process that has ended. Not the shared memory: the thread
        that beats may read it at this moment."""
        os.close(self._command_pipe)

    def _send_command(self, command: Command) -> None:
        # The child may have ended at this moment.
        with suppress(BrokenPipeError):
            os.write(self._command_pipe, encode_command(command))

    def _send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


def _make_environment(spec: ChildSpec) -> dict[str, str]:
    # The service manager expects messages from the supervisor only.
    inherited = {
        name: text for name, text in os.environ.items() if name not in NOTIFY_VARIABLES
    }
    return inherited | {CHILD_VARIABLE: spec.dump()}


@contextmanager
def _blocked_signals() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def describe_exit(code: int) -> str:
    """Describe how a process ended, from its exit code (negative: a signal)."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
