"""What each signal of the operating system does to a worker."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from django_jobqueue.models import Attempt, WorkerHeartbeat
from tests.processes import WorkerProcess
from tests.testapp import jobs
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    # On SQLite faults/test_signals.py tests every signal.
    pytest.mark.postgresql,
    pytest.mark.timeout(120),
]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_an_idle_worker_ends_at_once(
    worker_env: dict[str, str], number: signal.Signals
) -> None:
    with WorkerProcess(worker_env) as worker:
        worker.wait_until_started()
        worker.signal(number)
        assert worker.wait(timeout=10) == 0
    assert not WorkerHeartbeat.objects.exists()


def test_quit_does_not_wait_for_running_jobs(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    job = jobs.ignore_everything.enqueue(
        touch=str(tmp_path / "started"), until=str(tmp_path / "never")
    )
    with WorkerProcess(worker_env) as worker:
        wait_until((tmp_path / "started").exists)
        worker.signal(signal.SIGQUIT)
        assert worker.wait(timeout=5) == 0
    job.refresh_from_db()
    assert (job.status, job.attempts, job.error) == ("pending", 0, "")


def test_hup_lets_jobs_end_and_restarts_in_the_same_process(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    job = jobs.wait_for_file.enqueue(
        touch=str(tmp_path / "started"), until=str(tmp_path / "never")
    )
    with WorkerProcess(worker_env) as worker:
        wait_until((tmp_path / "started").exists)
        before = WorkerHeartbeat.objects.get()
        worker.signal(signal.SIGHUP)
        wait_until(lambda: worker.read_log().count("worker started") == 2)
        # The handler saw context.stopping and ended by itself.
        assert job.wait(timeout=10).status == "succeeded"
        after = WorkerHeartbeat.objects.get()
        assert after.pk != before.pk
        # A process manager sees no gap.
        assert worker.process.poll() is None
        assert jobs.add.enqueue(x=1).wait(timeout=20).result == 2
        assert worker.stop() == 0
    assert not Attempt.objects.exists()


def test_usr1_logs_the_stacks_of_all_threads_and_stops_nothing(
    worker_env: dict[str, str],
) -> None:
    with WorkerProcess(worker_env) as worker:
        worker.wait_until_started()
        worker.signal(signal.SIGUSR1)
        worker.wait_until_logged("Thread jobqueue-heartbeat:", "loop.py")
        assert jobs.add.enqueue(x=1).wait(timeout=20).result == 2
        assert worker.stop() == 0
