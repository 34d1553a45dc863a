"""LogQueue: a logger for threads that must not wait for their log.

Used by the supervisor's main thread and by the threads that beat: writing to a pipe
that is not read blocks. A daemon thread writes the lines in order; while it is blocked,
lines beyond the limit are dropped.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import Any

MAX_LINES = 1000

# Level, message, its arguments, and the error whose traceback is written with it.
Line = tuple[int, Any, tuple[Any, ...], BaseException | None]


class LogQueue:
    """Has the methods of a logger, which return at once."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)
        self._lines: queue.Queue[Line] = queue.Queue(MAX_LINES)
        self._thread: threading.Thread | None = None
        # Monotonic: when the write of the present line began; None: there is none.
        self._began: float | None = None

    def info(self, message: Any, *args: Any) -> None:
        self.log(logging.INFO, message, *args)

    def warning(self, message: Any, *args: Any) -> None:
        self.log(logging.WARNING, message, *args)

    def error(self, message: Any, *args: Any) -> None:
        self.log(logging.ERROR, message, *args)

    def critical(self, message: Any, *args: Any) -> None:
        self.log(logging.CRITICAL, message, *args)

    def debug(self, message: Any, *args: Any) -> None:
        self.log(logging.DEBUG, message, *args)

    def exception(self, message: Any, *args: Any) -> None:
        """Log the error that is being handled, with its traceback."""
        self.log(logging.ERROR, message, *args, error=sys.exception())

    def log(
        self,
        level: int,
        message: Any,
        *args: Any,
        error: BaseException | None = None,
    ) -> None:
        try:
            self._lines.put_nowait((level, message, args, error))
        except queue.Full:
            return
        if self._thread is None or not self._thread.is_alive():
            self._start_thread()

    def measure_delay(self, now: float) -> float:
        """Return how many seconds the write of the present line has taken so far."""
        began = self._began
        return 0.0 if began is None else now - began

    def flush(self, seconds: float) -> bool:
        """Wait until all lines are written; return whether they are."""
        with self._lines.all_tasks_done:
            return self._lines.all_tasks_done.wait_for(
                lambda: not self._lines.unfinished_tasks, seconds
            )

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name="jobqueue-log", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system has no thread left: the next line tries again.
            return
        self._thread = thread

    def _run(self) -> None:
        while True:
            level, message, args, error = self._lines.get()
            self._began = time.monotonic()
            # A filter or handler of the project may raise.
            with suppress(Exception):
                self._logger.log(level, message, *args, exc_info=error)
            # Keep no traceback until the next line.
            message, args, error = None, (), None
            self._began = None
            self._lines.task_done()
