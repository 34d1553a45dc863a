"""Program: the process of `runworker` as the operating system sees it.

Which signals it heeds, how it starts anew under the same pid, how it ends in time, and
whether it may be started again by its command line.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from .children import HELD_SIGNALS

if TYPE_CHECKING:
    from .supervisor import Supervisor
    from .worker import Worker

HEEDED_SIGNALS = {*HELD_SIGNALS, signal.SIGTERM}


def can_supervise() -> bool:
    """Tell whether this process may be started again by its own command line.

    Not on Windows, and not where a program calls the command: that would run the
    program once more.
    """
    return is_own_program() and hasattr(os, "waitid")


def is_own_program() -> bool:
    """Tell whether this process is there for the worker only, and ends with it."""
    return sys.argv[1:2] == ["runworker"] or sys.argv[1:3] == ["jobqueue", "worker"]


def heed_signals(supervisor: Supervisor) -> None:
    """TERM and INT drain, again: hurry; QUIT hurries; HUP drains and starts anew; USR1
    writes the stacks of all processes to the log."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stop())
    signal.signal(signal.SIGQUIT, lambda *_: supervisor.stop(hurry=True))
    signal.signal(signal.SIGHUP, lambda *_: supervisor.restart())
    signal.signal(signal.SIGUSR1, lambda *_: supervisor.show_stacks())
    signal.signal(signal.SIGCHLD, lambda *_: supervisor.look())
    # After a restart they have waited for this moment.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED_SIGNALS)


def heed_signals_alone(worker: Worker) -> None:
    """TERM and INT drain, again: hurry; QUIT hurries; HUP drains and starts anew; USR1
    writes the stacks of all threads to the log."""
    asked = itertools.count()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop(hurry=next(asked) > 0))
    # Windows has none of these.
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGQUIT, lambda *_: worker.stop(hurry=True))
        signal.signal(signal.SIGHUP, lambda *_: worker.restart())
        signal.signal(signal.SIGUSR1, lambda *_: worker.show_stacks())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED_SIGNALS)


def flush() -> None:
    """Write out what is buffered."""
    for stream in (sys.stdout, sys.stderr):
        # Nobody may be reading any more.
        with suppress(OSError, ValueError):
            stream.flush()


def restart(worker: Worker | Supervisor) -> None:
    """Start the same process anew: whoever watches its pid sees no gap."""
    # What comes from here on waits until the new program has handlers: a signal must
    # not end it, nor get lost. What has come is heeded: it may be that we shall end.
    signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED_SIGNALS)
    worker.heed_all()
    if worker.is_to_restart:
        os.execv(sys.executable, sys.orig_argv)


def leave(worker: Worker) -> None:
    """See that the process ends in time, whatever threads its jobs have left in it."""
    if worker.has_abandoned:
        # Threads with jobs that were given back must not go on one moment longer.
        os._exit(0)
    if worker.seconds_left is not None and is_own_program():
        # Python would wait for others for as long as they like.
        threading.Thread(
            target=_end_after, args=(worker.seconds_left,), daemon=True
        ).start()


def _end_after(seconds: float) -> None:
    time.sleep(seconds)
    os._exit(0)


def reap_strangers(ours: set[int]) -> None:
    """As the first process of a container: take leave of orphans, not of our own.

    Only one that has ended can be looked at without taking leave of it, so that one of
    our own hides the others until its turn has come.
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
