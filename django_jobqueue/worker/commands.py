"""Commands to the main thread of a worker or a supervisor, and its mailbox.

Signal handlers, other threads and the supervisor's pipe put commands into the mailbox;
the main thread takes them out and acts on them. The pipe carries one byte per command.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from enum import Enum, auto


class Command(Enum):
    """What the main thread is asked to do, or an event that it has to know."""

    # End after the running jobs; they have the shutdown time-out.
    DRAIN = auto()
    # End now and give running jobs back.
    STOP_NOW = auto()
    # Drain, then start the same program again under the same pid.
    RESTART = auto()
    # To a child: end after the running jobs, without a time limit.
    RETIRE = auto()
    # Log the stacks of all threads.
    SHOW_STACKS = auto()
    # To a worker: --burst or --once has no job left.
    DRAINED = auto()
    # To a supervisor: stop all processes until SIGCONT.
    SUSPEND = auto()
    # To a supervisor: a job waits that must run alone.
    SUSPECTS_SEEN = auto()
    # To a supervisor: a child may have ended; run the next step at once.
    CHILD_CHANGED = auto()


# Part of the protocol between a supervisor and its children. Both run the same version:
# ChildSpec carries it.
_PIPE_BYTES = {
    Command.DRAIN: b"d",
    Command.RETIRE: b"r",
    Command.STOP_NOW: b"q",
    Command.SHOW_STACKS: b"s",
}
_COMMANDS = {byte: command for command, byte in _PIPE_BYTES.items()}


class UnknownCommandError(Exception):
    """The pipe carried a byte that is no command, or was given such a command."""


def encode_command(command: Command) -> bytes:
    """Return the byte that carries a command through the pipe to a child.

    Raises UnknownCommandError for a command that is not meant for a child.
    """
    try:
        return _PIPE_BYTES[command]
    except KeyError:
        raise UnknownCommandError(f"{command} cannot be sent to a child") from None


def decode_command(byte: bytes) -> Command:
    """Return the command that one byte of the pipe carries.

    Raises UnknownCommandError for any other byte: it must not be taken for a stop.
    """
    try:
        return _COMMANDS[byte]
    except KeyError:
        raise UnknownCommandError(f"{byte!r} is not a command") from None


class Mailbox:
    """Commands in the order in which they came."""

    def __init__(self) -> None:
        # A SimpleQueue, since its put() is reentrant: an Event set by a signal handler
        # could deadlock with a wait that the signal interrupts.
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()

    def put(self, command: Command) -> None:
        """Add a command. Safe in a signal handler and in any thread."""
        self._commands.put(command)

    def take(self, timeout: float = 0.0) -> Command | None:
        """Return the next command, or None if none comes within `timeout` seconds."""
        try:
            return self._commands.get(timeout=timeout)
        except queue.Empty:
            return None

    def take_all(self) -> Iterator[Command]:
        """Yield the commands that have come so far, without waiting."""
        while (command := self.take()) is not None:
            yield command
