"""Make a part of a worker block or fail, and signal receivers slow, from a test.

With JOBQUEUE_TEST_WEDGES in its environment, a worker process loads this module as an
app. The variable names a folder. A file in it with the name of a wedge arms that wedge.
The first process that reaches it removes the file and is wedged from then on. The time
limits of the worker's health are shortened. The package contains none of this.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.apps import AppConfig

VARIABLE = "JOBQUEUE_TEST_WEDGES"
# In seconds; they replace the limits of the package.
UNWELL = 1.5
DRAIN = 0.5
QUIET = 1.0
START = 3.0
ANNOUNCE = 1.0
EXIT = 0.5
SLOW_RECEIVER = 0.5


def take(folder: Path, name: str) -> bool:
    """Disarm a wedge; return whether it was armed. Only one process gets True."""
    try:
        (folder / name).unlink()
    except FileNotFoundError:
        return False
    (folder / f"{name} by {os.getpid()}").touch()
    return True


def block() -> None:
    threading.Event().wait()


def fail() -> None:
    raise RuntimeError("requested by a test")


def hold_log_locks() -> None:
    """Acquire the locks of all log handlers in a thread that then ends."""

    def acquire() -> None:
        for handler in logging.getLogger().handlers:
            handler.acquire()

    thread = threading.Thread(target=acquire)
    thread.start()
    thread.join()


class WedgesConfig(AppConfig):
    """Loaded by tests/settings.py if the variable is set."""

    name = "tests.faults"
    label = "wedges"

    def ready(self) -> None:
        folder = Path(os.environ[VARIABLE])
        _shorten_bounds(folder)
        _wedge_parts(folder)
        _connect_receivers(folder)


def _shorten_bounds(folder: Path) -> None:
    from django_jobqueue.worker import worker
    from django_jobqueue.worker.health import progress
    from django_jobqueue.worker.startup import program
    from django_jobqueue.worker.supervision import child, child_watch, process_pool

    progress.TICK_SECONDS = 0.1
    progress.LOCK_WAIT_SECONDS = 0.2
    progress.UNWELL_SECONDS = UNWELL
    progress.END_PROCESS_SECONDS = UNWELL + DRAIN
    child.QUIET_SECONDS = QUIET
    if (folder / "start").exists():
        # Only for this wedge: on a busy machine a start may take longer.
        child.START_SECONDS = START
    child_watch.STALLED_DRAIN_SECONDS = DRAIN
    worker.ANNOUNCE_SECONDS = ANNOUNCE
    program.EXIT_SECONDS = EXIT
    process_pool.LONGEST_PAUSE_SECONDS = 0.25


def _wedge_parts(folder: Path) -> None:
    from django_jobqueue.worker import finisher
    from django_jobqueue.worker.claiming import claimer
    from django_jobqueue.worker.supervision.supervised_heartbeat import (
        SupervisedHeartbeat,
    )
    from django_jobqueue.worker.worker import Worker

    _wrap(finisher, "finish_attempts", folder, {"finish": block})
    _wrap(finisher, "finish_attempts", folder, {"finish fails": fail}, is_sticky=True)
    _wrap(claimer, "claim_jobs", folder, {"claim": block, "logging": hold_log_locks})
    _wrap(Worker, "drain", folder, {"drain": block})
    _wrap(SupervisedHeartbeat, "start", folder, {"start": block})


def _wrap(
    owner: Any,
    name: str,
    folder: Path,
    wedges: dict[str, Callable[[], None]],
    *,
    is_sticky: bool = False,
) -> None:
    function = getattr(owner, name)
    taken: set[str] = set()

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        for wedge, act in wedges.items():
            if wedge in taken or take(folder, wedge):
                if is_sticky:
                    taken.add(wedge)
                act()
        return function(*args, **kwargs)

    setattr(owner, name, wrapped)


def _connect_receivers(folder: Path) -> None:
    from django_jobqueue.signals import worker_started

    def receive(**values: Any) -> None:
        if (folder / "slow receiver").exists():
            time.sleep(SLOW_RECEIVER)
        if take(folder, "hanging receiver"):
            block()
        if take(folder, "exiting receiver"):
            raise SystemExit(3)

    worker_started.connect(receive, weak=False)
