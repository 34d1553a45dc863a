"""Service: messages to systemd, or any service manager with its protocol.

The protocol of sd_notify(3) and sd_watchdog_enabled(3), in the standard library: one
datagram for each message. Used by HealthReporter.
"""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Mapping

from ...log_events import Event

logger = logging.getLogger("django_jobqueue.worker")

# Meant for the process that the manager starts, not for its children.
NOTIFY_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Service:
    """The service manager, at the other end of a datagram socket."""

    def __init__(self, address: str, *, watchdog: float = math.inf) -> None:
        # A leading @ stands for the NUL of an abstract socket address.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        # Twice within the manager's watchdog time.
        self._interval = watchdog / 2
        self._next_report = 0.0
        self._has_failed = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # Never wait for a manager that does not read.
        self._socket.setblocking(False)

    def send(self, *lines: str) -> bool:
        """Send one message; return whether the manager accepted it."""
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                logger.warning(
                    Event("the service manager cannot be notified", error=error)
                )
            self._has_failed = True
            return False
        self._has_failed = False
        return True

    def keep_alive(self, now: float) -> None:
        """Feed the manager's watchdog, if it is time to."""
        if now >= self._next_report and not math.isinf(self._interval):
            self._next_report = now + self._interval
            self.send("WATCHDOG=1")

    def close(self) -> None:
        self._socket.close()


def find_service(environ: Mapping[str, str] = os.environ) -> Service | None:
    """Return the service manager that expects messages of this process, or None."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return None
    if address[0] not in "/@":
        logger.warning(
            Event(
                "NOTIFY_SOCKET must begin with / or @; no manager is notified",
                address=address,
            )
        )
        return None
    return Service(address, watchdog=_read_watchdog(environ))


def _read_watchdog(environ: Mapping[str, str]) -> float:
    """Return the manager's watchdog time in seconds; inf: it has no watchdog."""
    text = environ.get("WATCHDOG_USEC", "")
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return math.inf
    return int(text) / 1e6 if text.isdecimal() and int(text) else math.inf
