"""Signs of life: what a worker shows to those who watch its process.

Three ways for the same thing: messages to systemd, answers to probes, a file that is
touched. The main thread shows its vitals here wherever it waits; that it does not come
any more is a sign too.
"""

from __future__ import annotations

import logging
import os
import time
from http import HTTPStatus
from pathlib import Path

from ..exceptions import ConfigurationError
from ..options import Options
from ..signals import Event
from .probes import Answer, ProbeServer
from .systemd import Service
from .vitals import Vitals, find_deadly, find_unready

logger = logging.getLogger("django_jobqueue.worker")


class SignsOfLife:
    """Shows how a worker is, in the ways that the options ask for."""

    def __init__(self, options: Options, *, service: Service | None = None) -> None:
        self._ttl = options.heartbeat_ttl
        self._service = service
        self._told = ""
        self._vitals = Vitals()
        self._shown = time.monotonic()
        self._confirmed = 0.0
        self._options = options
        self._file: Path | None = None
        self._has_failed = False
        self._probes: ProbeServer | None = None

    def open(self) -> None:
        """Begin to answer. Raises ConfigurationError where that is impossible."""
        options = self._options
        if options.heartbeat_file is not None:
            self._file = _check_file(options.heartbeat_file)
        if options.health_port is not None:
            self._probes = ProbeServer(
                options.health_host,
                options.health_port,
                questions={"/live": self.answer_live, "/ready": self.answer_ready},
            )
            where = {"host": options.health_host, "port": self._probes.port}
            logger.info(Event("health endpoint listens", **where))

    def show(self, vitals: Vitals) -> None:
        """Take note of how the worker is now. Only for its main thread."""
        now = time.monotonic()
        self._vitals, self._shown = vitals, now
        if self._service is not None:
            self._notify(self._service, vitals)
            if not vitals.stuck:
                self._service.keep_alive(now)
        if vitals.confirmed != self._confirmed:
            self._confirmed = vitals.confirmed
            self._touch()

    def close(self) -> None:
        if self._probes is not None:
            self._probes.close()
        if self._service is not None:
            self._service.close()

    def answer_live(self) -> Answer:
        """Say whether the process works, whatever the database does."""
        vitals, shown = self._vitals, self._shown
        reasons = find_deadly(vitals, time.monotonic(), shown=shown)
        return _make_answer("live", vitals, reasons)

    def answer_ready(self) -> Answer:
        """Say whether jobs can be expected to start here."""
        vitals, now = self._vitals, time.monotonic()
        reasons = find_deadly(vitals, now, shown=self._shown)
        reasons += find_unready(vitals, now, ttl=self._ttl)
        return _make_answer("ready", vitals, reasons)

    def _notify(self, service: Service, vitals: Vitals) -> None:
        """Tell the service manager what it does not know yet."""
        if vitals.is_restarting:
            # Without the moment, `systemctl reload` would not take it for its own.
            moment = time.monotonic_ns() // 1000
            lines = ["RELOADING=1", f"MONOTONIC_USEC={moment}"]
        elif vitals.is_stopping:
            lines = ["STOPPING=1"]
        elif vitals.is_ready:
            lines = ["READY=1"]
        else:
            return
        if lines[0] != self._told and service.tell(*lines):
            self._told = lines[0]

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


def _make_answer(word: str, vitals: Vitals, reasons: list[str]) -> Answer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return status, {
        "status": f"not {word}" if reasons else word,
        "reasons": reasons,
        "processes": vitals.processes,
        "running": vitals.running,
    }


def _check_file(path: str) -> Path:
    """Return the path, if a file can be made there: a typing error in it would make a
    worker look dead that is not."""
    file = Path(path)
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise ConfigurationError(
            f"The heartbeat file {path!r} cannot be written. Choose a path in a folder "
            f"that exists and where this user may write."
        )
    return file
