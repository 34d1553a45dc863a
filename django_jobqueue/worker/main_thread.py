"""MainThread: what a worker and a supervisor do alike in the main thread.

Commands arrive in one mailbox and are handled between two waits. The status for probes
is passed on at the same places, so it also shows that the main thread goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..options import Options
from .commands import Command, Mailbox
from .health.reporter import HealthReporter
from .health.status import IdleClock, WorkerStatus


class MainThread(ABC):
    """Base of Worker and Supervisor: asks for the end, and acts on commands."""

    def __init__(
        self, options: Options, *, health_reporter: HealthReporter | None
    ) -> None:
        self.options = options
        self.mailbox = Mailbox()
        self.exit_code = 0
        # Set by the main thread once it has acted on a command to stop.
        self.is_stopping = False
        self.is_to_restart = False
        # A signal has asked for the end; a second one means: now.
        self._is_stop_requested = False
        self._idle = IdleClock(options)
        # None in a child: probes ask its supervisor.
        self._health_reporter = health_reporter

    def stop(self, *, now: bool = False) -> None:
        """Ask for the end; the second time: now. Safe in a signal handler."""
        self.mailbox.put(Command.STOP_NOW if now else Command.DRAIN)

    def stop_without_log(self, code: int) -> None:
        """Ask for the end because the log is lost; `code` is the exit code."""
        self.exit_code = code
        self.stop()

    def is_asked_to_stop(self, timeout: float = 0.0) -> bool:
        """Wait for a command and act on it; return whether the process stops.

        Only for the main thread, which calls this wherever it waits.
        """
        if (command := self.mailbox.take(timeout)) is not None:
            self._handle_command(command)
        self._check_after_wait()
        if self._health_reporter is not None:
            self._health_reporter.show(self._read_status())
        return self.is_stopping

    def handle_commands(self) -> None:
        """Act on the commands that have come so far, without waiting."""
        for command in self.mailbox.take_all():
            self._handle_command(command)

    @abstractmethod
    def _handle_command(self, command: Command) -> None: ...

    @abstractmethod
    def _check_after_wait(self) -> None: ...

    @abstractmethod
    def _read_status(self) -> WorkerStatus: ...
