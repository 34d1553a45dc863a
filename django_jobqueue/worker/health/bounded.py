"""Run code that may never return in another thread, and wait for it a limited time.

For log lines and receivers of signals: a log handler's lock may never be released, and
a receiver is code of the project. The thread that calls this must go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import connections

from ...failures import describe_exception
from ...log_events import Event

logger = logging.getLogger("django_jobqueue.worker")

# How long a log line may take before its thread is left behind.
LOG_LINE_SECONDS = 1.0


def start_aside(function: Callable[[], None], *, name: str) -> threading.Thread | None:
    """Run a function in a new thread; None if no thread can be started."""
    thread = threading.Thread(
        target=_run, args=(function,), name=f"jobqueue-{name}", daemon=True
    )
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def run_bounded(
    function: Callable[[], None], *, seconds: float | None = None, name: str = "bounded"
) -> bool:
    """Run a function and wait at most so long (None: as for a log line); return
    whether it has returned."""
    thread = start_aside(function, name=name)
    if thread is None:
        return False
    thread.join(LOG_LINE_SECONDS if seconds is None else seconds)
    return not thread.is_alive()


def _run(function: Callable[[], None]) -> None:
    try:
        function()
    # Also sys.exit() of a receiver: it must end nothing but the receiver.
    except BaseException as error:
        reason = describe_exception(error).short
        logger.error(Event("a receiver of a signal failed", error=reason))
    finally:
        connections.close_all()
