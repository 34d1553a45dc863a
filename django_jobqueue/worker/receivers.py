"""Receivers: a thread that sends a worker's signals. No loop waits for receivers.

Receivers are the user's code: they may be slow, hang, or lose their connection. They
run one after the other, in the order of the events, on Django's connections of this
thread, which are reset as around a job. While receivers are slow, the loops wait for
room in the queue. While one hangs, signals are dropped and counted, and jobs go on.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Any

from django.dispatch import Signal

from ..log_events import Event
from ..signals import send_signal
from .running.job_connections import close_idle_connections, reset_connections

logger = logging.getLogger("django_jobqueue.worker")

# Signals that may wait in the queue. Above that the sender waits too.
MAX_WAITING_SIGNALS = 10_000
# After this long in one receiver no sender waits for it any more.
HANGING_RECEIVER_SECONDS = 5.0
# Between two log lines about dropped signals.
DROP_REPORT_SECONDS = 60.0
# After this long without a signal the thread closes its connections.
IDLE_CLOSE_SECONDS = 1.0


def send_tidily(signal: Signal, **values: Any) -> None:
    """Send from this thread, which has no job, and reset its connections around it.

    Without that, a connection that the server has ended would fail every later
    receiver.
    """
    if signal.receivers:
        reset_connections()
        send_signal(signal, **values)
        reset_connections()


class Receivers:
    """The queue of signals and the thread that sends them."""

    def __init__(self, *, room: int = MAX_WAITING_SIGNALS) -> None:
        self.dropped = 0
        self._queue: queue.Queue[tuple[Signal, dict[str, Any]] | None]
        self._queue = queue.Queue(room)
        # Monotonic: when the current receivers were called; None: none is running.
        self._began: float | None = None
        self._next_report = 0.0
        self._thread = threading.Thread(
            target=self._run, name="jobqueue-signals", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def send(self, signal: Signal, **values: Any) -> None:
        """Queue a signal for its receivers, if it has any; from any thread.

        Before start() they are called at once, in the thread of the caller.
        """
        if not signal.receivers:
            return
        if not self._thread.is_alive():
            send_signal(signal, **values)
            return
        while True:
            try:
                self._queue.put((signal, values), timeout=0.1)
                return
            except queue.Full:
                if self._is_hanging():
                    self._drop()
                    return

    def finish(self, timeout: float) -> bool:
        """End the thread after the waiting signals; return whether it has ended."""
        if not self._thread.is_alive():
            return True
        if self._queue.empty():
            self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=IDLE_CLOSE_SECONDS)
            except queue.Empty:
                close_idle_connections()
                continue
            if item is None:
                close_idle_connections()
                return
            signal, values = item
            self._began = time.monotonic()
            send_tidily(signal, **values)
            self._began = None

    def _is_hanging(self) -> bool:
        began = self._began
        return began is not None and time.monotonic() - began > HANGING_RECEIVER_SECONDS

    def _drop(self) -> None:
        self.dropped += 1
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + DROP_REPORT_SECONDS
            text = "a receiver of a signal hangs; signals are dropped"
            logger.error(Event(text, dropped=self.dropped))
