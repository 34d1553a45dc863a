"""Starting with something missing or wrong: one clear line, no traceback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import WorkerProcess
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(120),
]


def run(env: dict[str, str], *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "django", "runworker", *flags],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_database_without_our_tables_is_an_error_that_says_what_to_run(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    name = (
        "postgres"
        if os.environ["JOBQUEUE_TEST_DATABASE"] == "postgresql"
        else str(tmp_path / "empty.sqlite3")
    )

    done = run({**worker_env, "JOBQUEUE_TEST_NAME_default": name})

    assert done.returncode == 1
    assert "lacks migrations of django_jobqueue (0001_initial" in done.stderr
    assert "Run: manage.py migrate --database default" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.postgresql
def test_a_worker_waits_for_a_database_that_is_down(
    worker_env: dict[str, str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    # The port is closed again.
    url = f"postgres://postgres@127.0.0.1:{port}/postgres"
    with WorkerProcess({**worker_env, "DATABASE_URL": url}) as worker:
        wait_until(lambda: worker.read_log().count("trying again in") >= 2)
        log = worker.read_log()
        assert "The database 'default' cannot be reached, trying again in 1 s" in log
        assert "Traceback" not in log
        assert worker.stop(timeout=5) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--queues", "bad name"), "A queue name has 1 to 64 letters"),
        (("--queues", "a:0"), "from 1 to 1000 as the weight"),
        (("--concurrency", "0"), "--concurrency must be a whole number from 1"),
        (("--database", "nowhere"), "There is no database 'nowhere'"),
        (("--once", "--burst"), "not allowed with"),
        (("--poll-interval", "0"), "--poll-interval must be a number of seconds"),
    ],
)
def test_a_wrong_flag_is_an_error_that_says_what_was_expected(
    worker_env: dict[str, str], flags: tuple[str, ...], message: str
) -> None:
    done = run(worker_env, *flags)

    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_setting_in_the_environment_is_named(
    worker_env: dict[str, str],
) -> None:
    done = run({**worker_env, "WORKER_CONCURRENCY": "many"})

    assert done.returncode == 1
    assert "The environment variable WORKER_CONCURRENCY must be" in done.stderr
    assert "it is 'many'" in done.stderr
