"""What a worker shows to systemd, to probes and in a file, from its vitals alone."""

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
from django_jobqueue.worker import probes
from django_jobqueue.worker.loop import STUCK
from django_jobqueue.worker.probes import ProbeServer
from django_jobqueue.worker.signs import SignsOfLife
from django_jobqueue.worker.systemd import Service, find_service
from django_jobqueue.worker.vitals import Vitals
from tests.waiting import wait_until


class Manager:
    """The end of a notify socket that systemd has."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address.replace("@", "\0", 1))
        self._socket.setblocking(False)

    def hear(self) -> list[str]:
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
def healthy() -> Vitals:
    return Vitals(is_ready=True, confirmed=time.monotonic(), processes=2, running=3)


def make_signs(**options: Any) -> SignsOfLife:
    return SignsOfLife(Options(**options))


def watched_by(manager: Manager, **variables: str) -> SignsOfLife:
    service = find_service({"NOTIFY_SOCKET": manager.address, **variables})
    assert service is not None
    return SignsOfLife(Options(), service=service)


# --- systemd


def test_manager_hears_of_each_stage_once(manager: Manager, healthy: Vitals) -> None:
    signs = watched_by(manager)
    signs.show(Vitals())
    assert manager.hear() == []
    signs.show(healthy)
    signs.show(healthy)
    assert manager.hear() == ["READY=1"]
    signs.show(Vitals(is_stopping=True))
    signs.show(Vitals(is_stopping=True))
    assert manager.hear() == ["STOPPING=1"]
    signs.close()


def test_manager_hears_when_a_restart_began(manager: Manager, healthy: Vitals) -> None:
    signs = watched_by(manager)
    signs.show(healthy)
    before = time.monotonic_ns() // 1000
    signs.show(Vitals(is_stopping=True, is_restarting=True))
    _, message = manager.hear()
    word, moment = message.split("\n")
    assert word == "RELOADING=1"
    name, _, number = moment.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before <= int(number) <= time.monotonic_ns() // 1000
    # Somebody has changed their mind.
    signs.show(Vitals(is_stopping=True))
    assert manager.hear() == ["STOPPING=1"]
    signs.close()


def test_watchdog_is_fed_twice_in_its_time(manager: Manager) -> None:
    service = Service(manager.address, watchdog=10.0)
    for now in (100.0, 104.9, 105.0, 109.0, 110.0):
        service.keep_alive(now)
    assert manager.hear() == ["WATCHDOG=1"] * 3
    service.close()


def test_watchdog_hears_nothing_while_a_loop_is_stuck(
    manager: Manager, healthy: Vitals
) -> None:
    signs = watched_by(manager, WATCHDOG_USEC="2000000")
    signs.show(replace(healthy, stuck=("heartbeat",)))
    assert manager.hear() == ["READY=1"]
    signs.show(healthy)
    assert manager.hear() == ["WATCHDOG=1"]
    signs.close()


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
    manager: Manager, healthy: Vitals, variables: dict[str, str]
) -> None:
    signs = watched_by(manager, **variables)
    signs.show(healthy)
    assert manager.hear() == ["READY=1"]
    signs.close()


def test_watchdog_of_this_process_is_fed(manager: Manager, healthy: Vitals) -> None:
    variables = {"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}
    signs = watched_by(manager, **variables)
    signs.show(healthy)
    assert manager.hear() == ["READY=1", "WATCHDOG=1"]
    signs.close()


def test_a_manager_that_is_away_is_told_later(tmp_path: Path, healthy: Vitals) -> None:
    service = Service(str(tmp_path / "notify"))
    signs = SignsOfLife(Options(), service=service)
    signs.show(healthy)
    manager = Manager(str(tmp_path / "notify"))
    signs.show(healthy)
    assert manager.hear() == ["READY=1"]
    signs.close()
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


def test_a_healthy_worker_is_live_and_ready(healthy: Vitals) -> None:
    signs = make_signs()
    signs.show(healthy)
    numbers = {"reasons": [], "processes": 2, "running": 3}
    assert signs.answer_live() == (200, {"status": "live", **numbers})
    assert signs.answer_ready() == (200, {"status": "ready", **numbers})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_ready": False}, "no process is ready yet"),
        ({"is_stopping": True, "is_ready": False}, "it drains"),
        ({"confirmed": 0.0}, "the database has not confirmed a beat yet"),
    ],
)
def test_what_keeps_a_worker_from_being_ready_does_not_kill_it(
    healthy: Vitals, change: dict[str, Any], reason: str
) -> None:
    signs = make_signs()
    signs.show(replace(healthy, **change))
    status, document = signs.answer_ready()
    assert (status, document["status"]) == (503, "not ready")
    assert document["reasons"] == [reason]
    assert signs.answer_live()[0] == 200


def test_a_beat_older_than_the_ttl_is_not_ready(healthy: Vitals) -> None:
    signs = make_signs()
    signs.show(replace(healthy, confirmed=healthy.confirmed - 31))
    status, document = signs.answer_ready()
    assert status == 503
    assert document["reasons"] == ["the database confirmed the last beat 31 s ago"]
    signs.show(replace(healthy, confirmed=healthy.confirmed - 20))
    assert signs.answer_ready()[0] == 200


def test_a_stuck_loop_is_neither_live_nor_ready(healthy: Vitals) -> None:
    signs = make_signs()
    signs.show(replace(healthy, stuck=("heartbeat",)))
    for status, document in (signs.answer_live(), signs.answer_ready()):
        assert status == 503
        assert document["reasons"] == ["the heartbeat loop is stuck"]


def test_a_main_thread_that_does_not_come_any_more_is_not_live(healthy: Vitals) -> None:
    signs = make_signs()
    signs.show(healthy)
    signs._shown -= STUCK + 5
    status, document = signs.answer_live()
    assert (status, document["status"]) == (503, "not live")
    [reason] = document["reasons"]
    assert reason.startswith("the main loop has been silent for ")


def test_probes_are_answered_by_http(
    healthy: Vitals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="django_jobqueue.worker")
    signs = make_signs(health_port=0)
    signs.open()
    assert signs._probes is not None
    port = signs._probes.port
    try:
        signs.show(healthy)
        assert ask(port, "/live?verbose=1")[1]["status"] == "live"
        assert ask(port, "/ready", "HEAD") == (200, None)
        signs.show(replace(healthy, is_ready=False))
        assert ask(port, "/ready") == (503, signs.answer_ready()[1])
        assert ask(port, "/") == (404, {"error": "There is /live and /ready."})
    finally:
        signs.close()
    assert f"port={port}" in caplog.text
    with pytest.raises(OSError, match=r".*"):
        ask(port, "/live")


def test_clients_that_say_nothing_keep_nobody_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "MOST", 3)
    answer = (http.HTTPStatus.OK, {"status": "fine"})
    server = ProbeServer("127.0.0.1", 0, questions={"/": lambda: answer})
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


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match="Choose another --health-port"):
            make_signs(health_port=port).open()


# --- the file


def test_file_is_touched_at_each_confirmed_beat(
    tmp_path: Path, healthy: Vitals
) -> None:
    file = tmp_path / "beat"
    signs = make_signs(heartbeat_file=str(file))
    signs.open()
    signs.show(Vitals())
    assert not file.exists()
    signs.show(healthy)
    os.utime(file, (0, 0))
    # No beat was confirmed since.
    signs.show(healthy)
    assert file.stat().st_mtime == 0
    signs.show(replace(healthy, confirmed=healthy.confirmed + 1))
    assert file.stat().st_mtime > 0


def test_file_that_cannot_be_touched_any_more_is_said_once(
    tmp_path: Path, healthy: Vitals, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    signs = make_signs(heartbeat_file=str(folder / "beat"))
    signs.open()
    folder.rmdir()
    for later in (1.0, 2.0):
        signs.show(replace(healthy, confirmed=healthy.confirmed + later))
    assert caplog.text.count("the heartbeat file cannot be touched") == 1
    folder.mkdir()
    signs.show(healthy)
    wait_until((folder / "beat").exists)


def test_file_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "beat", tmp_path):
        with pytest.raises(ConfigurationError, match="cannot be written"):
            make_signs(heartbeat_file=str(path)).open()
