"""A worker embedded in a web process: it starts with it and ends with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from django_jobqueue.models import Attempt, WorkerHeartbeat
from tests.processes import is_alive, list_children
from tests.testapp import jobs
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(240),
]
Env = dict[str, str]


def count_workers() -> int:
    return WorkerHeartbeat.objects.count()


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
        # No process outlives a failed test: all are in one process group.
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


def test_runserver_starts_one_worker_and_stops_it(worker_env: Env) -> None:
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
def test_other_commands_start_no_worker(worker_env: Env) -> None:
    env = {**worker_env, "JOBQUEUE_EMBED_WORKER": "true"}
    command = "import os, django; django.setup(); os.waitpid(-1, os.WNOHANG)"
    done = subprocess.run(
        [sys.executable, "-c", command], env=env, capture_output=True, text=True
    )
    assert "ChildProcessError" in done.stderr
