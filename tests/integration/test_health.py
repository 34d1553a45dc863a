"""A real worker as seen by systemd, health probes and a heartbeat file."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from django_jobqueue import Job
from django_jobqueue.models import WorkerHeartbeat
from tests.processes import WorkerProcess
from tests.proxy import CuttingProxy
from tests.testapp import jobs
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(240),
]
Env = dict[str, str]
FAST = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.5", "JOBQUEUE_HEARTBEAT_TTL": "3"}

# The second mode does not depend on the database: it runs on one of them.
in_both_modes = pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="supervised"),
        pytest.param(("--in-process",), id="alone", marks=pytest.mark.postgresql),
    ],
)


def find_port(worker: WorkerProcess) -> int:
    """Return the port of the health endpoint, from the log."""

    def find() -> re.Match[str] | None:
        return re.search(r"health endpoint listens.* port=(\d+)", worker.read_log())

    return int(wait_until(find)[1])


def probe(port: int, path: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    return response.status, document


@contextmanager
def notify_socket(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(60)
        yield manager


def receive(manager: socket.socket, expected: str) -> str:
    """Return the next message that is, or is not, for the watchdog, as expected."""
    while True:
        message = manager.recv(4096).decode()
        if message.startswith("WATCHDOG") == expected.startswith("WATCHDOG"):
            return message


@in_both_modes
def test_systemd_probes_and_a_file_show_the_health_of_a_worker(
    worker_env: Env, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    beat = tmp_path / "beat"
    flags = (*flags, "--health-port", "0", "--heartbeat-file", str(beat))
    watch = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
    with (
        notify_socket(tmp_path / "notify") as manager,
        WorkerProcess(worker_env, *flags, **FAST, **watch) as worker,
    ):
        assert receive(manager, "READY=1") == "READY=1"
        assert receive(manager, "WATCHDOG=1") == "WATCHDOG=1"
        port = find_port(worker)
        wait_until(lambda: probe(port, "/ready")[0] == 200)
        assert probe(port, "/live")[1]["status"] == "live"
        before = wait_until(lambda: beat.exists() and beat.stat().st_mtime_ns)
        wait_until(lambda: beat.stat().st_mtime_ns > before)

        worker.signal(signal.SIGHUP)
        assert receive(manager, "RELOADING=1").startswith(
            "RELOADING=1\nMONOTONIC_USEC="
        )
        assert receive(manager, "READY=1") == "READY=1"
        assert worker.stop() == 0
        assert receive(manager, "STOPPING=1") == "STOPPING=1"


@pytest.mark.postgresql
def test_probes_are_answered_while_the_database_is_down(worker_env: Env) -> None:
    database = settings.DATABASES["default"]
    with CuttingProxy(database["HOST"], int(database["PORT"])) as proxy:
        url = f"postgres://{database['USER']}@127.0.0.1:{proxy.port}/postgres"
        env = {**worker_env, "DATABASE_URL": url, **FAST}
        with WorkerProcess(env, "--health-port", "0") as worker:
            port = find_port(worker)
            wait_until(lambda: probe(port, "/ready")[0] == 200)
            proxy.go_away()
            wait_until(lambda: probe(port, "/ready")[0] == 503)
            [reason] = probe(port, "/ready")[1]["reasons"]
            assert re.fullmatch(
                r"the database confirmed the last beat \d+ s ago", reason
            )
            assert probe(port, "/live")[0] == 200
            proxy.come_back()
            wait_until(lambda: probe(port, "/ready")[0] == 200)
            assert worker.stop() == 0


@in_both_modes
def test_worker_without_a_job_for_a_while_exits_with_code_0(
    worker_env: Env, flags: tuple[str, ...]
) -> None:
    made = [jobs.sleep_briefly.enqueue(seconds=0.5) for _ in range(3)]
    flags = (*flags, "--idle-timeout", "1", "--concurrency", "1")
    with WorkerProcess(worker_env, *flags) as worker:
        assert worker.wait() == 0
        assert worker.has_logged("no job for a while")
    assert {Job.objects.get(pk=job.pk).status for job in made} == {"succeeded"}
    assert not WorkerHeartbeat.objects.exists()


@pytest.mark.postgresql
def test_worker_does_not_start_if_its_port_is_in_use(worker_env: Env) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with WorkerProcess(worker_env, "--health-port", port) as worker:
            assert worker.wait() == 1
            assert worker.has_logged("The health endpoint cannot listen on")
            assert not worker.has_logged("Traceback")
