"""Processes that exit early or with code 0: only jobs that ran in them are charged."""

from __future__ import annotations

from pathlib import Path

import pytest

from django_jobqueue import DeadJob, Job
from tests.processes import WorkerProcess
from tests.testapp import dangerous, jobs
from tests.testapp.waiting_job import enqueue_waiting_job
from tests.waiting import wait_until

from . import wedges

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Env = dict[str, str]
FAST = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.5", "JOBQUEUE_HEARTBEAT_TTL": "3"}


@pytest.fixture
def wedged(worker_env: Env, tmp_path: Path) -> Env:
    return {**worker_env, **FAST, wedges.VARIABLE: str(tmp_path)}


def test_crashing_job_that_is_pending_at_the_start_does_not_end_the_supervisor(
    wedged: Env, tmp_path: Path
) -> None:
    (tmp_path / "slow receiver").touch()
    crashing = dangerous.exit_at_once.enqueue(code=9)
    good = [jobs.add.enqueue(x=number) for number in range(3)]
    with WorkerProcess(wedged, JOBQUEUE_MAX_CRASHES="2") as worker:
        dead = wait_until(lambda: DeadJob.objects.filter(pk=crashing.pk).first())
        assert (dead.reason, dead.crashes) == ("crashed", 2)
        for job in good:
            assert job.wait(timeout=30).attempts == 1
        assert worker.stop() == 0
        assert worker.has_logged("supervisor ends cause=")


def test_exit_with_code_zero_inside_a_handler_is_a_crash(
    worker_env: Env, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    repeated = dangerous.exit_quietly.using(max_attempts=10).enqueue(ledger=str(ledger))
    once = dangerous.exit_quietly.using(max_attempts=1).enqueue(
        ledger=str(tmp_path / "once")
    )
    flags = ("--concurrency", "1")
    with WorkerProcess(worker_env, *flags, **FAST, JOBQUEUE_MAX_CRASHES="2") as worker:
        wait_until(lambda: DeadJob.objects.count() == 2)
        assert worker.stop() == 0
    for job in (repeated, once):
        dead = DeadJob.objects.get(pk=job.pk)
        assert dead.reason == "crashed"
        assert "exited with code 0" in dead.error
    assert (tmp_path / "once").read_text().splitlines() == ["start"]
    assert len(ledger.read_text().splitlines()) == 2


def test_once_fails_when_its_job_ends_the_process_with_code_zero(
    worker_env: Env, tmp_path: Path
) -> None:
    dangerous.exit_quietly.enqueue(ledger=str(tmp_path / "ledger"))
    with WorkerProcess(worker_env, "--once", **FAST) as worker:
        assert worker.wait() == 1
    assert Job.objects.get().crashes == 1


def test_shutdown_that_abandons_a_job_does_not_charge_it(
    worker_env: Env, tmp_path: Path
) -> None:
    waiting = enqueue_waiting_job(tmp_path)
    with WorkerProcess(worker_env, "--shutdown-timeout", "0.2", **FAST) as worker:
        waiting.wait_until_started()
        assert worker.stop() == 0
    job = waiting.job
    job.refresh_from_db()
    assert (job.status, job.attempts, job.crashes) == ("pending", 0, 0)


def test_supervisor_whose_first_child_cannot_start_logs_why(worker_env: Env) -> None:
    with WorkerProcess(worker_env, JOBQUEUE_TEST_CHILD_FAILS="5") as worker:
        assert worker.wait() == 5
        assert worker.has_logged("no child could start")
        assert worker.has_logged("exited with code 5")


@pytest.mark.parametrize("receiver", ["hanging receiver", "exiting receiver"])
def test_bad_receiver_of_worker_started_does_not_stop_jobs(
    wedged: Env, tmp_path: Path, receiver: str
) -> None:
    (tmp_path / receiver).touch()
    with WorkerProcess(wedged) as worker:
        assert jobs.add.enqueue(x=1).wait(timeout=20).result == 2
        assert worker.stop() == 0
        assert "crash" not in worker.read_log()
