"""The number of processes follows the backlog; no job is interrupted by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from django_jobqueue import Job
from django_jobqueue.models import Attempt, WorkerHeartbeat
from tests.processes import WorkerProcess
from tests.testapp import jobs
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
        # One job stays in each process: two processes are enough for three jobs, and
        # one must stop while it runs a job.
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
