"""HealthReporter: shows the status of a worker to what watches its process.

Three ways: messages to systemd, answers to HTTP probes, a file that is touched. The
main thread passes its status here wherever it waits. If it no longer comes, the probes
report that, too.
"""

from __future__ import annotations

import logging
import os
import time
from http import HTTPStatus
from pathlib import Path

from ...exceptions import ConfigurationError
from ...log_events import Event
from ...options import Options
from .http import Answer, HealthServer
from .status import WorkerStatus, find_fatal_reasons, find_unready_reasons
from .systemd import Service

logger = logging.getLogger("django_jobqueue.worker")


class HealthReporter:
    """Shows the status of a worker in the ways that the options ask for."""

    def __init__(self, options: Options, *, service: Service | None = None) -> None:
        self._ttl = options.heartbeat_ttl
        self._service = service
        self._last_sent = ""
        self._status = WorkerStatus()
        self._shown = time.monotonic()
        self._confirmed = 0.0
        self._options = options
        self._file: Path | None = None
        self._has_failed = False
        self._probes: HealthServer | None = None

    def open(self) -> None:
        """Open the file and the port. Raises ConfigurationError if that fails."""
        options = self._options
        if options.heartbeat_file is not None:
            self._file = _check_file(options.heartbeat_file)
        if options.health_port is not None:
            self._probes = HealthServer(
                options.health_host,
                options.health_port,
                answers={"/live": self.answer_live, "/ready": self.answer_ready},
            )
            where = {"host": options.health_host, "port": self._probes.port}
            logger.info(Event("health endpoint listens", **where))

    def show(self, status: WorkerStatus) -> None:
        """Store the status, and pass it on. Only for the worker's main thread."""
        now = time.monotonic()
        self._status, self._shown = status, now
        if self._service is not None:
            self._notify(self._service, status)
            if not status.stuck:
                self._service.keep_alive(now)
        if status.confirmed != self._confirmed:
            self._confirmed = status.confirmed
            self._touch()

    def close(self) -> None:
        if self._probes is not None:
            self._probes.close()
        if self._service is not None:
            self._service.close()

    def answer_live(self) -> Answer:
        """Answer whether the process works, whatever the database does."""
        status, shown = self._status, self._shown
        reasons = find_fatal_reasons(status, time.monotonic(), shown=shown)
        return _make_answer("live", status, reasons)

    def answer_ready(self) -> Answer:
        """Answer whether jobs can be expected to start here."""
        status, now = self._status, time.monotonic()
        reasons = find_fatal_reasons(status, now, shown=self._shown)
        reasons += find_unready_reasons(status, now, ttl=self._ttl)
        return _make_answer("ready", status, reasons)

    def _notify(self, service: Service, status: WorkerStatus) -> None:
        """Send the state to the service manager if it has changed."""
        if status.is_restarting:
            # Without the moment, `systemctl reload` does not accept the message.
            moment = time.monotonic_ns() // 1000
            lines = ["RELOADING=1", f"MONOTONIC_USEC={moment}"]
        elif status.is_stopping:
            lines = ["STOPPING=1"]
        elif status.is_ready:
            lines = ["READY=1"]
        else:
            return
        if lines[0] != self._last_sent and service.send(*lines):
            self._last_sent = lines[0]

    def _touch(self) -> None:
        if self._file is None:
            return
        try:
            self._file.touch()
        except OSError as error:
            if not self._has_failed:
                logger.warning(
                    Event("the heartbeat file cannot be touched", error=error)
                )
            self._has_failed = True
        else:
            self._has_failed = False


def _make_answer(name: str, status: WorkerStatus, reasons: list[str]) -> Answer:
    code = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return code, {
        "status": f"not {name}" if reasons else name,
        "reasons": reasons,
        "stalled": list(status.stalled),
        "processes": status.processes,
        "running": status.running,
    }


def _check_file(path: str) -> Path:
    """Return the path if a file can be written there: with a typing error in it, a
    healthy worker would look dead."""
    file = Path(path)
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigurationError(
            f"The heartbeat file {path!r} cannot be written. Choose a path in a folder "
            f"that exists and where this user may write."
        )
    return file
