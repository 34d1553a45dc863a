"""A process that cannot write, claim or log is not ready, and is replaced."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from django_jobqueue import Job
from tests.processes import WorkerProcess, is_alive
from tests.testapp import dangerous, jobs, leftover_jobs
from tests.testapp.waiting_job import enqueue_waiting_job
from tests.waiting import wait_until

from . import wedges

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Env = dict[str, str]
FAST = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.25", "JOBQUEUE_HEARTBEAT_TTL": "3"}


@pytest.fixture
def wedged(worker_env: Env, tmp_path: Path) -> Env:
    return {**worker_env, **FAST, wedges.VARIABLE: str(tmp_path)}


class Probe:
    """Reads the health endpoint of a worker."""

    def __init__(self, worker: WorkerProcess) -> None:
        found = wait_until(
            lambda: re.search(r"listens host=\S+ port=(\d+)", worker.read_log())
        )
        self._port = found[1]

    def read(self, path: str) -> tuple[int, dict[str, Any]]:
        try:
            url = f"http://127.0.0.1:{self._port}{path}"
            with urllib.request.urlopen(url, timeout=5) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def is_ready(self) -> bool:
        return self.read("/ready")[0] == 200

    def has_reason(self, pattern: str) -> bool:
        status, document = self.read("/ready")
        return status == 503 and any(
            re.fullmatch(pattern, reason) for reason in document["reasons"]
        )


def find_wedged(folder: Path, wedge: str) -> int:
    """Return the pid of the wedged process."""

    def find() -> int:
        return next(
            (int(path.name.split()[-1]) for path in folder.glob(f"{wedge} by *")), 0
        )

    return wait_until(find)


@pytest.mark.parametrize(
    ("wedge", "subject"),
    [
        ("finish", "the finish loop"),
        ("finish fails", "the finish loop"),
        ("claim", "the claim loop"),
        ("logging", "logging"),
    ],
)
def test_a_child_without_progress_is_not_ready_and_is_replaced(
    wedged: Env, tmp_path: Path, wedge: str, subject: str
) -> None:
    with WorkerProcess(wedged, "--health-port", "0") as worker:
        probe = Probe(worker)
        wait_until(probe.is_ready)
        (tmp_path / wedge).touch()
        job = jobs.add.enqueue(x=1)
        pid = find_wedged(tmp_path, wedge)
        reason = f"{subject} of process {pid} has made no progress for [0-9]+ s"
        wait_until(lambda: probe.has_reason(reason), pause=0.05)
        # The supervisor replaces the child: the worker itself stays live.
        assert probe.read("/live")[0] == 200
        wait_until(lambda: not is_alive(pid), timeout=15)
        assert job.wait(timeout=20).result == 2
        wait_until(probe.is_ready)
        assert worker.stop() == 0


@pytest.mark.once
@pytest.mark.parametrize("wedge", ["finish", "logging"])
def test_a_worker_without_a_supervisor_ends_itself_with_code_75(
    wedged: Env, tmp_path: Path, wedge: str
) -> None:
    (tmp_path / wedge).touch()
    jobs.add.enqueue(x=1)
    with WorkerProcess(wedged, "--in-process") as worker:
        assert worker.wait(timeout=30) == 75
        # Also if logging is wedged.
        assert worker.has_logged("no progress")
        assert worker.has_logged("Thread jobqueue-health")


@pytest.mark.once
def test_a_running_job_survives_a_wedged_claim_loop(
    wedged: Env, tmp_path: Path
) -> None:
    waiting = enqueue_waiting_job(tmp_path)
    with WorkerProcess(wedged) as worker:
        waiting.wait_until_started()
        (tmp_path / "claim").touch()
        other = jobs.add.enqueue(x=1)
        pid = find_wedged(tmp_path, "claim")
        assert other.wait(timeout=20).result == 2
        waiting.let_end()
        done = waiting.job.wait(timeout=20)
        assert (done.status, done.attempts, done.crashes) == ("succeeded", 1, 0)
        wait_until(lambda: not is_alive(pid), timeout=15)
        assert worker.stop() == 0


@pytest.mark.once
def test_a_job_that_blocks_logging_repeatedly_dies_of_its_crashes(
    wedged: Env,
) -> None:
    job = dangerous.block_logging.enqueue()
    with WorkerProcess(wedged, JOBQUEUE_MAX_CRASHES="2") as worker:
        wait_until(lambda: not Job.objects.filter(pk=job.pk).exists(), timeout=60)
        assert jobs.add.enqueue(x=1).wait(timeout=20).result == 2
        assert worker.stop() == 0


@pytest.mark.once
def test_a_child_that_does_not_exit_is_killed(wedged: Env, tmp_path: Path) -> None:
    (tmp_path / "drain").touch()
    with WorkerProcess(wedged, "--max-jobs", "1") as worker:
        worker.wait_until_started()
        jobs.add.enqueue(x=1).wait(timeout=20)
        pid = find_wedged(tmp_path, "drain")
        wait_until(lambda: not is_alive(pid), timeout=15)
        worker.wait_until_logged("did not leave in time")
        assert worker.stop() == 0


@pytest.mark.once
def test_a_child_that_does_not_start_is_killed(wedged: Env, tmp_path: Path) -> None:
    (tmp_path / "start").touch()
    with WorkerProcess(wedged) as worker:
        assert worker.wait() == 1
        assert worker.has_logged("has not started in time")
        assert worker.has_logged("no child could start")


@pytest.mark.once
def test_a_retired_child_does_not_wait_for_threads_that_its_jobs_left(
    wedged: Env, tmp_path: Path
) -> None:
    with WorkerProcess(wedged, "--max-jobs", "1") as worker:
        worker.wait_until_started()
        job = dangerous.leave_executor.enqueue(hook=str(tmp_path / "hook")).wait(
            timeout=20
        )
        wait_until(lambda: not is_alive(job.result), timeout=15)
        # Its exit hooks were called, and it was not killed.
        assert (tmp_path / "hook").exists()
        assert worker.stop() == 0
        assert not worker.has_logged("did not leave in time")


@pytest.mark.postgresql
def test_process_whose_pool_is_held_by_threads_of_an_ended_job_is_replaced(
    wedged: Env,
) -> None:
    with WorkerProcess(wedged, JOBQUEUE_TEST_POOL="2") as worker:
        worker.wait_until_started()
        left = leftover_jobs.leave_threads_with_connections.enqueue(count=2)
        assert left.wait(timeout=20).status == "succeeded"
        job = jobs.leave_effect.enqueue(name="after")
        worker.wait_until_logged("Django's connection pool of process")
        assert job.wait(timeout=20).status == "succeeded"
        assert worker.stop() == 0
