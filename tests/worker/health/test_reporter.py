"""What a worker shows to systemd, to probes and in a file, from its status alone."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from django_jobqueue.exceptions import ConfigurationError
from django_jobqueue.options import Options
from django_jobqueue.worker.health import http as health_http
from django_jobqueue.worker.health.http import HealthServer
from django_jobqueue.worker.health.reporter import HealthReporter
from django_jobqueue.worker.health.status import WorkerStatus
from django_jobqueue.worker.health.systemd import Service, find_service
from django_jobqueue.worker.loop import STUCK_SECONDS
from tests.waiting import wait_until


class Manager:
    """The end of a notify socket that systemd has."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))
        self._socket.setblocking(False)

    def receive(self) -> list[str]:
        """Return the messages that have come since."""
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return messages

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    name = f"@jobqueue-{uuid4()}"
    made = Manager(str(tmp_path / "notify") if request.param == "file" else name)
    yield made
    made.close()


@pytest.fixture
def healthy() -> WorkerStatus:
    return WorkerStatus(
        is_ready=True, confirmed=time.monotonic(), processes=2, running=3
    )


def make_signs(**options: Any) -> HealthReporter:
    return HealthReporter(Options(**options))


def watched_by(manager: Manager, **variables: str) -> HealthReporter:
    service = find_service({"NOTIFY_SOCKET": manager.address, **variables})
    assert service is not None
    return HealthReporter(Options(), service=service)


# --- systemd


def test_the_manager_is_notified_of_each_stage_once(
    manager: Manager, healthy: WorkerStatus
) -> None:
    health_reporter = watched_by(manager)
    health_reporter.show(WorkerStatus())
    assert manager.receive() == []
    health_reporter.show(healthy)
    health_reporter.show(healthy)
    assert manager.receive() == ["READY=1"]
    health_reporter.show(WorkerStatus(is_stopping=True))
    health_reporter.show(WorkerStatus(is_stopping=True))
    assert manager.receive() == ["STOPPING=1"]
    health_reporter.close()


def test_the_manager_is_notified_when_a_restart_begins(
    manager: Manager, healthy: WorkerStatus
) -> None:
    health_reporter = watched_by(manager)
    health_reporter.show(healthy)
    before = time.monotonic_ns() // 1000
    health_reporter.show(WorkerStatus(is_stopping=True, is_restarting=True))
    _, message = manager.receive()
    state, moment = message.split("\n")
    assert state == "RELOADING=1"
    name, _, number = moment.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(number) <= time.monotonic_ns() // 1000
    # A stop follows the restart.
    health_reporter.show(WorkerStatus(is_stopping=True))
    assert manager.receive() == ["STOPPING=1"]
    health_reporter.close()


def test_watchdog_is_fed_twice_in_its_time(manager: Manager) -> None:
    service = Service(manager.address, watchdog=10.0)
    for now in (100.0, 104.9, 105.0, 109.0, 110.0):
        service.keep_alive(now)
    assert manager.receive() == ["WATCHDOG=1"] * 3
    service.close()


def test_watchdog_is_not_fed_while_a_loop_is_stuck(
    manager: Manager, healthy: WorkerStatus
) -> None:
    health_reporter = watched_by(manager, WATCHDOG_USEC="2000000")
    health_reporter.show(replace(healthy, stuck=("heartbeat",)))
    assert manager.receive() == ["READY=1"]
    health_reporter.show(healthy)
    assert manager.receive() == ["WATCHDOG=1"]
    health_reporter.close()


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"},
    ],
    ids=["none", "zero", "nonsense", "of another process"],
)
def test_without_a_watchdog_none_is_fed(
    manager: Manager, healthy: WorkerStatus, variables: dict[str, str]
) -> None:
    health_reporter = watched_by(manager, **variables)
    health_reporter.show(healthy)
    assert manager.receive() == ["READY=1"]
    health_reporter.close()


def test_watchdog_of_this_process_is_fed(
    manager: Manager, healthy: WorkerStatus
) -> None:
    variables = {"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}
    health_reporter = watched_by(manager, **variables)
    health_reporter.show(healthy)
    assert manager.receive() == ["READY=1", "WATCHDOG=1"]
    health_reporter.close()


def test_a_manager_that_is_away_is_notified_later(
    tmp_path: Path, healthy: WorkerStatus
) -> None:
    service = Service(str(tmp_path / "notify"))
    health_reporter = HealthReporter(Options(), service=service)
    health_reporter.show(healthy)
    manager = Manager(str(tmp_path / "notify"))
    health_reporter.show(healthy)
    assert manager.receive() == ["READY=1"]
    health_reporter.close()
    manager.close()


@pytest.mark.parametrize("address", ["", "vsock:2:1234"])
def test_no_manager_is_found_at_no_address(address: str) -> None:
    assert find_service({"NOTIFY_SOCKET": address}) is None


# --- probes


def ask(port: int, path: str, method: str = "GET") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, json.loads(body) if body else None


def test_a_healthy_worker_is_live_and_ready(healthy: WorkerStatus) -> None:
    health_reporter = make_signs()
    health_reporter.show(healthy)
    numbers = {"reasons": [], "stalled": [], "processes": 2, "running": 3}
    assert health_reporter.answer_live() == (200, {"status": "live", **numbers})
    assert health_reporter.answer_ready() == (200, {"status": "ready", **numbers})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_ready": False}, "no process is ready yet"),
        ({"is_ready": False, "silent": ("process 7 has",)}, "process 7 has"),
        ({"is_stopping": True, "is_ready": False}, "draining"),
        ({"confirmed": 0.0}, "the database has not confirmed a beat yet"),
    ],
)
def test_what_keeps_a_worker_from_being_ready_does_not_kill_it(
    healthy: WorkerStatus, change: dict[str, Any], reason: str
) -> None:
    health_reporter = make_signs()
    health_reporter.show(replace(healthy, **change))
    status, document = health_reporter.answer_ready()
    assert (status, document["status"]) == (503, "not ready")
    assert document["reasons"] == [reason]
    assert health_reporter.answer_live()[0] == 200


def test_a_beat_older_than_the_ttl_is_not_ready(healthy: WorkerStatus) -> None:
    health_reporter = make_signs()
    health_reporter.show(replace(healthy, confirmed=healthy.confirmed - 31))
    status, document = health_reporter.answer_ready()
    assert status == 503
    assert document["reasons"] == ["the database confirmed the last beat 31 s ago"]
    health_reporter.show(replace(healthy, confirmed=healthy.confirmed - 20))
    assert health_reporter.answer_ready()[0] == 200


def test_a_stuck_loop_is_neither_live_nor_ready(healthy: WorkerStatus) -> None:
    health_reporter = make_signs()
    health_reporter.show(replace(healthy, stuck=("heartbeat",)))
    for status, document in (
        health_reporter.answer_live(),
        health_reporter.answer_ready(),
    ):
        assert status == 503
        assert document["reasons"] == ["the heartbeat loop is stuck"]


def test_a_worker_whose_process_makes_no_progress_is_live_and_not_ready(
    healthy: WorkerStatus,
) -> None:
    health_reporter = make_signs()
    reason = "the finish loop of process 7 has made no progress for 41 s"
    health_reporter.show(replace(healthy, stalled=(reason,)))
    status, document = health_reporter.answer_live()
    assert (status, document["reasons"], document["stalled"]) == (200, [], [reason])
    status, document = health_reporter.answer_ready()
    assert (status, document["reasons"]) == (503, [reason])


def test_a_worker_whose_main_thread_hangs_is_not_live(
    healthy: WorkerStatus,
) -> None:
    health_reporter = make_signs()
    health_reporter.show(healthy)
    health_reporter._shown -= STUCK_SECONDS + 5
    status, document = health_reporter.answer_live()
    assert (status, document["status"]) == (503, "not live")
    [reason] = document["reasons"]
    assert reason.startswith("the main loop has been silent for ")


def test_probes_are_answered_by_http(
    healthy: WorkerStatus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="django_jobqueue.worker")
    health_reporter = make_signs(health_port=0)
    health_reporter.open()
    assert health_reporter._probes is not None
    port = health_reporter._probes.port
    try:
        health_reporter.show(healthy)
        assert ask(port, "/live?verbose=1")[1]["status"] == "live"
        assert ask(port, "/ready", "HEAD") == (200, None)
        health_reporter.show(replace(healthy, is_ready=False))
        assert ask(port, "/ready") == (503, health_reporter.answer_ready()[1])
        assert ask(port, "/") == (404, {"error": "There is /live and /ready."})
    finally:
        health_reporter.close()
    assert f"port={port}" in caplog.text
    with pytest.raises(OSError, match=r".*"):
        ask(port, "/live")


def test_clients_that_send_nothing_do_not_block_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health_http, "MAX_REQUESTS", 3)
    answer = (http.HTTPStatus.OK, {"status": "fine"})
    server = HealthServer("127.0.0.1", 0, answers={"/": lambda: answer})
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
    try:
        assert ask(server.port, "/") == (200, {"status": "fine"})
        # The oldest of them were dropped.
        silent[0].settimeout(10)
        assert silent[0].recv(1) == b""
    finally:
        for client in silent:
            client.close()
        server.close()


def test_a_port_in_use_is_a_configuration_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match="Choose another --health-port"):
            make_signs(health_port=port).open()


# --- the file


def test_file_is_touched_at_each_confirmed_beat(
    tmp_path: Path, healthy: WorkerStatus
) -> None:
    file = tmp_path / "beat"
    health_reporter = make_signs(heartbeat_file=str(file))
    health_reporter.open()
    health_reporter.show(WorkerStatus())
    assert not file.exists()
    health_reporter.show(healthy)
    os.utime(file, (0, 0))
    # No beat was confirmed since.
    health_reporter.show(healthy)
    assert file.stat().st_mtime == 0
    health_reporter.show(replace(healthy, confirmed=healthy.confirmed + 1))
    assert file.stat().st_mtime > 0


def test_a_file_that_can_no_longer_be_touched_is_logged_once(
    tmp_path: Path, healthy: WorkerStatus, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    health_reporter = make_signs(heartbeat_file=str(folder / "beat"))
    health_reporter.open()
    folder.rmdir()
    for later in (1.0, 2.0):
        health_reporter.show(replace(healthy, confirmed=healthy.confirmed + later))
    assert caplog.text.count("the heartbeat file cannot be touched") == 1
    folder.mkdir()
    health_reporter.show(healthy)
    wait_until((folder / "beat").exists)


def test_a_file_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "beat", tmp_path):
        with pytest.raises(ConfigurationError, match="cannot be written"):
            make_signs(heartbeat_file=str(path)).open()
