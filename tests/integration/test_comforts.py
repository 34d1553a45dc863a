"""Scaling, reloading, signs of life and the embedded worker, with real processes."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from django_jobqueue import Job
from django_jobqueue.models import Attempt, WorkerHeartbeat
from tests.processes import WorkerProcess, is_alive, list_children
from tests.proxy import CuttingProxy
from tests.testapp import jobs, lingering
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

Env = dict[str, str]
FAST = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.5", "JOBQUEUE_HEARTBEAT_TTL": "3"}


def count_workers() -> int:
    return WorkerHeartbeat.objects.count()


def list_running() -> list[Job]:
    return list(Job.objects.filter(status="running"))


def find_port(worker: WorkerProcess) -> int:
    """Return the port that the health endpoint has said it listens on."""

    def find() -> re.Match[str] | None:
        return re.search(r"health endpoint listens.* port=(\d+)", worker.read_log())

    return int(wait_until(find)[1])


def ask(port: int, path: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    return response.status, document


# --- scaling


# The second mode knows nothing of databases: it is seen on one of them.
in_both_modes = pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="supervised"),
        pytest.param(("--in-process",), id="alone", marks=pytest.mark.postgresql),
    ],
)


@pytest.mark.postgresql
def test_processes_follow_a_burst_and_no_job_is_dropped(
    worker_env: Env, tmp_path: Path
) -> None:
    ends = [tmp_path / f"end{number}" for number in range(6)]
    made = [
        jobs.ignore_everything.enqueue(touch=str(tmp_path / "x"), until=str(end))
        for end in ends
    ]
    flags = ("--concurrency", "2", "--max-processes", "3")
    with WorkerProcess(
        worker_env, *flags, JOBQUEUE_SCALE_DOWN_AFTER="1", **FAST
    ) as worker:
        # Two slots are not enough for six jobs, six are.
        wait_until(lambda: len(list_running()) == 6, timeout=60)
        assert count_workers() == 3
        # One job stays in each process: two of these are enough for three jobs, and
        # one has to go with a job inside.
        owners = {job.worker_id: job.pk for job in list_running()}
        for job, end in zip(made, ends, strict=True):
            if job.pk not in owners.values():
                end.touch()
        wait_until(lambda: worker.has_logged("scaling processes=2"), timeout=60)
        wait_until(
            lambda: WorkerHeartbeat.objects.filter(state="stopping").exists(),
            timeout=60,
        )
        assert len(list_running()) == 3
        for end in ends:
            end.touch()
        assert {job.wait(timeout=60).attempts for job in made} == {1}
        wait_until(lambda: count_workers() == 1, timeout=60)
        assert jobs.add.enqueue(x=1).wait(timeout=60).result == 2
        assert worker.stop() == 0
    assert not Attempt.objects.exists()


# --- signs of life


@contextmanager
def notify_socket(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(60)
        yield manager


def hear(manager: socket.socket, word: str) -> str:
    """Return the next message that is no sign of life, or the next sign of life."""
    while True:
        message = manager.recv(4096).decode()
        if message.startswith("WATCHDOG") == word.startswith("WATCHDOG"):
            return message


@in_both_modes
def test_systemd_probes_and_a_file_tell_how_a_worker_is(
    worker_env: Env, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    beat = tmp_path / "beat"
    flags = (*flags, "--health-port", "0", "--heartbeat-file", str(beat))
    watch = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
    with (
        notify_socket(tmp_path / "notify") as manager,
        WorkerProcess(worker_env, *flags, **FAST, **watch) as worker,
    ):
        assert hear(manager, "READY=1") == "READY=1"
        assert hear(manager, "WATCHDOG=1") == "WATCHDOG=1"
        port = find_port(worker)
        wait_until(lambda: ask(port, "/ready")[0] == 200)
        assert ask(port, "/live")[1]["status"] == "live"
        before = wait_until(lambda: beat.exists() and beat.stat().st_mtime_ns)
        wait_until(lambda: beat.stat().st_mtime_ns > before)

        worker.signal(signal.SIGHUP)
        assert hear(manager, "RELOADING=1").startswith("RELOADING=1\nMONOTONIC_USEC=")
        assert hear(manager, "READY=1") == "READY=1"
        assert worker.stop() == 0
        assert hear(manager, "STOPPING=1") == "STOPPING=1"


@pytest.mark.postgresql
def test_probes_are_answered_while_the_database_is_away(worker_env: Env) -> None:
    database = settings.DATABASES["default"]
    with CuttingProxy(database["HOST"], int(database["PORT"])) as proxy:
        url = f"postgres://{database['USER']}@127.0.0.1:{proxy.port}/postgres"
        env = {**worker_env, "DATABASE_URL": url, **FAST}
        with WorkerProcess(env, "--health-port", "0") as worker:
            port = find_port(worker)
            wait_until(lambda: ask(port, "/ready")[0] == 200)
            proxy.go_away()
            wait_until(lambda: ask(port, "/ready")[0] == 503)
            [reason] = ask(port, "/ready")[1]["reasons"]
            assert re.fullmatch(
                r"the database confirmed the last beat \d+ s ago", reason
            )
            assert ask(port, "/live")[0] == 200
            proxy.come_back()
            wait_until(lambda: ask(port, "/ready")[0] == 200)
            assert worker.stop() == 0


@in_both_modes
def test_worker_without_a_job_for_a_while_ends_well(
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
def test_port_that_is_taken_keeps_a_worker_from_starting(worker_env: Env) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with WorkerProcess(worker_env, "--health-port", port) as worker:
            assert worker.wait() == 1
            assert worker.has_logged("The health endpoint cannot listen on")
            assert not worker.has_logged("Traceback")


# --- reloading

CODE = """
def tell(touch="", until=""):
    from tests.testapp.jobs import meet

    meet(touch, until)
    return {version!r}
"""


@pytest.fixture
def project(worker_env: Env, tmp_path: Path) -> tuple[Path, Env]:
    """Return a module of a project and the environment in which it is loaded."""
    package = tmp_path / "reloaded"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(CODE.format(version="old"))
    (tmp_path / "reloaded_settings.py").write_text(
        "from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'reloaded']\n"
    )
    path = f"{tmp_path}{os.pathsep}{worker_env['PYTHONPATH']}"
    names = {"PYTHONPATH": path, "DJANGO_SETTINGS_MODULE": "reloaded_settings"}
    return package / "jobs.py", {**worker_env, **names}


def tell(**files: str) -> Job:
    return lingering.call_function.enqueue(path="reloaded.jobs.tell", **files)


def test_reload_lets_a_running_job_end_and_goes_on_with_the_new_code(
    project: tuple[Path, Env], tmp_path: Path
) -> None:
    module, env = project
    started, end = tmp_path / "started", tmp_path / "end"
    long = tell(touch=str(started), until=str(end))
    # A job that is in no hurry, but beyond the time that a worker has to shut down.
    with WorkerProcess(env, "--reload", "--shutdown-timeout", "0") as worker:
        wait_until(started.exists)
        module.write_text(CODE.format(version="newer"))
        wait_until(lambda: worker.has_logged("worker drains"))
        waiting = tell()
        end.touch()
        done = long.wait(timeout=60)
        assert (done.result, done.attempts) == ("old", 1)
        assert waiting.wait(timeout=60).result == "newer"

        module.write_text("def broken(:\n")
        wait_until(lambda: worker.has_logged("the code cannot be loaded"))
        assert worker.has_logged("SyntaxError")
        module.write_text(CODE.format(version="the newest"))
        assert tell().wait(timeout=60).result == "the newest"
        assert worker.stop() == 0
    assert not Attempt.objects.exists()


# --- the embedded worker

SERVER = """
import sys
from django.core.wsgi import get_wsgi_application
get_wsgi_application()
print("serving", flush=True)
sys.stdin.read()
"""


@contextmanager
def web_process(env: Env, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**env, "JOBQUEUE_EMBED_WORKER": "true"},
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        with process:
            yield process
            process.kill()
    finally:
        # Nothing outlives a failed test: they are one group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_no_job_is_lost_when_a_web_process_is_killed(
    worker_env: Env, tmp_path: Path
) -> None:
    started, end = tmp_path / "started", tmp_path / "end"
    job = jobs.ignore_everything.enqueue(touch=str(started), until=str(end))
    with web_process(worker_env, "-c", SERVER) as web:
        wait_until(started.exists)
        [worker] = list_children(web.pid)
        web.kill()
        web.wait()
        # The worker drains: the job may end, and nothing else is claimed.
        rows = WorkerHeartbeat.objects.filter(state="stopping")
        wait_until(rows.exists)
        late = jobs.add.enqueue(x=1)
        end.touch()
        done = job.wait(timeout=60)
        assert (done.status, done.attempts) == ("succeeded", 1)
        wait_until(lambda: not is_alive(worker))
        wait_until(lambda: not count_workers())
        late.refresh_from_db()
        assert late.status == "pending"
    assert not Attempt.objects.exists()


def test_runserver_hosts_one_worker_and_takes_it_along(worker_env: Env) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with web_process(
        worker_env, "-m", "django", "runserver", f"127.0.0.1:{port}"
    ) as web:
        assert jobs.add.enqueue(x=1).wait(timeout=60).result == 2
        [server] = list_children(web.pid)
        assert len(list_children(server)) == 1
        assert count_workers() == 1
        # Ctrl-C reaches the whole group.
        os.killpg(web.pid, signal.SIGINT)
        web.wait(timeout=60)
        wait_until(lambda: not count_workers())


@pytest.mark.postgresql
def test_other_commands_host_no_worker(worker_env: Env) -> None:
    env = {**worker_env, "JOBQUEUE_EMBED_WORKER": "true"}
    command = "import os, django; django.setup(); os.waitpid(-1, os.WNOHANG)"
    done = subprocess.run(
        [sys.executable, "-c", command], env=env, capture_output=True, text=True
    )
    assert "ChildProcessError" in done.stderr
