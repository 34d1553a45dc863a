"""The process of `runworker` as the operating system sees it.

Which signals it handles, how it starts again under the same pid, how it ends in time,
and whether it can be started again by its command line.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

from ..commands import Command, Mailbox
from ..health.bounded import run_bounded
from ..supervision.child import BLOCKED_SIGNALS

if TYPE_CHECKING:
    from ..main_thread import MainThread
    from ..worker import Worker

HANDLED_SIGNALS = {*BLOCKED_SIGNALS, signal.SIGTERM}
# The command of each signal. A second SIGTERM or SIGINT stops now: see DRAIN in Worker
# and Supervisor.
WORKER_SIGNALS: Mapping[str, Command | None] = {
    "SIGTERM": Command.DRAIN,
    "SIGINT": Command.DRAIN,
    "SIGQUIT": Command.STOP_NOW,
    "SIGHUP": Command.RESTART,
    "SIGUSR1": Command.SHOW_STACKS,
}
SUPERVISOR_SIGNALS: Mapping[str, Command | None] = {
    **WORKER_SIGNALS,
    "SIGTSTP": Command.SUSPEND,
    "SIGCHLD": Command.CHILD_CHANGED,
}
# The supervisor acts on these when they are sent to all processes. A handler that does
# nothing, not SIG_IGN: programs that a job starts would inherit SIG_IGN.
CHILD_SIGNALS: Mapping[str, Command | None] = {
    **WORKER_SIGNALS,
    "SIGINT": None,
    "SIGHUP": None,
}
# How long a process may take to end after all its jobs have ended.
EXIT_SECONDS = 5.0
# How long its exit hooks get on top, if threads of jobs keep Python from calling them.
EXIT_HOOKS_SECONDS = 0.5
# EX_IOERR: the log can no longer be written.
LOG_LOST = 74


def can_supervise() -> bool:
    """Return whether this process can be started again by its own command line.

    Not on Windows, and not where a program calls the command: that would run the
    program once more.
    """
    return is_own_program() and hasattr(os, "waitid")


def is_own_program() -> bool:
    """Return whether this process exists only for the worker, and ends with it."""
    return sys.argv[1:2] == ["runworker"] or sys.argv[1:3] == ["jobqueue", "worker"]


def install_signal_handlers(
    mailbox: Mailbox, commands: Mapping[str, Command | None]
) -> None:
    """Put the command of each signal into the mailbox; ignore those without one.

    A platform may lack some of these signals, as Windows does.
    """
    for name, command in commands.items():
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, _make_handler(mailbox, command))
    if hasattr(signal, "pthread_sigmask"):
        # They were blocked until now: by the supervisor in its children, and by the
        # old program across a restart.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)


def _make_handler(
    mailbox: Mailbox, command: Command | None
) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        if command is not None:
            mailbox.put(command)

    return handle


def open_closed_outputs() -> None:
    """Open /dev/null where this process was started without stdin, stdout or stderr.

    Python has None for such a stream. Its descriptor would go to the next file or
    database connection, and text written to stderr would be sent there.
    """
    for number in range(3):
        with suppress(OSError):
            os.fstat(number)
            continue
        # Takes the lowest number that is free. Children inherit it.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # For the life of the process.
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def flush() -> None:
    """Write out what is buffered."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        # Its reader may be gone.
        with suppress(OSError, ValueError):
            stream.flush()


def restart(worker: MainThread) -> None:
    """Start the program again under the same pid: a service manager sees no gap."""
    # Signals from here on wait until the new program has handlers: they must neither
    # end it nor get lost. Commands that have come already may ask for the end.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    worker.handle_commands()
    if worker.is_to_restart:
        os.execv(sys.executable, sys.orig_argv)


def leave(worker: Worker) -> None:
    """Make the process end in time, whatever threads its jobs have left in it."""
    if worker.has_abandoned:
        # Threads with jobs that were given back must not run on.
        os._exit(worker.exit_code)
    if is_own_program():
        # Python would wait for other threads without a limit, such as those of a
        # ThreadPoolExecutor that a handler has left behind.
        left = worker.seconds_left
        limit = EXIT_SECONDS if left is None else min(left, EXIT_SECONDS)
        began = threading.Event()
        # Registered last, so it is called before all other hooks.
        atexit.register(began.set)
        threading.Thread(
            target=_end_after, args=(limit, began, worker.exit_code), daemon=True
        ).start()


def _end_after(seconds: float, has_begun: threading.Event, code: int) -> None:
    time.sleep(seconds)
    if not has_begun.is_set():
        # The exit hooks flush logs, for example.
        run_bounded(atexit._run_exitfuncs, seconds=EXIT_HOOKS_SECONDS, name="exit")
    os._exit(code)


def reap_orphans(ours: set[int]) -> None:
    """As the first process of a container: reap orphans, but not our own children.

    waitid() shows only the first process that has ended. One of our own children hides
    the orphans behind it until the supervisor has reaped it.
    """
    while True:
        try:
            info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if info is None or info.si_pid in ours:
            return
        with suppress(ChildProcessError):
            os.waitpid(info.si_pid, os.WNOHANG)
