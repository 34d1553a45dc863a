"""Attempts that ignore their time-out or a request to cancel."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from django_jobqueue import DeadJob, Job, JobSpec
from django_jobqueue.models import Attempt, WorkerHeartbeat
from tests.processes import WorkerProcess
from tests.testapp import dangerous, jobs
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Env = dict[str, str]
GRACE = 1.0
FAST = {
    "JOBQUEUE_GRACE": str(GRACE),
    "JOBQUEUE_HEARTBEAT_INTERVAL": "0.5",
    "JOBQUEUE_HEARTBEAT_TTL": "3",
    "JOBQUEUE_SHUTDOWN_TIMEOUT": "5",
}

HANGING = [
    dangerous.hang_in_c,
    dangerous.hang_with_the_lock,
    dangerous.match_for_ever,
    dangerous.spin_for_ever,
    dangerous.swallow_everything,
    dangerous.swallow_cancellation,
    dangerous.block_the_event_loop,
    jobs.query_for_ever,
]


@pytest.mark.parametrize("hanging", HANGING, ids=lambda handler: str(handler.name))
def test_attempt_is_over_soon_after_its_grace(
    worker_env: Env, tmp_path: Path, hanging: Any
) -> None:
    ledger = str(tmp_path / "ledger")
    with WorkerProcess(worker_env, "--concurrency", "6", **FAST) as worker:
        worker.wait_until_started()
        job = hanging.enqueue()
        neighbours = [
            handler.enqueue(ledger=ledger, seconds=1.0)
            for handler in (dangerous.note, dangerous.note_async) * 2
        ]

        dead = wait_until(lambda: DeadJob.objects.filter(pk=job.pk).first())
        assert dead.reason == "timeout"
        assert dead.lease_token > 1 or hanging in (
            dangerous.spin_for_ever,
            jobs.query_for_ever,
        )
        started = dead.started_at
        assert started is not None
        assert (dead.died_at - started).total_seconds() < 0.5 + GRACE + 1
        attempt = Attempt.objects.get(job_id=job.pk)
        assert (attempt.outcome, attempt.number) == ("timeout", 1)
        assert "JobTimeout" in attempt.exception_class

        for neighbour in neighbours:
            done = neighbour.wait(timeout=30)
            assert (done.status, done.attempts, done.crashes) == ("succeeded", 1, 0)
        # Whether or not the process was replaced, the next job runs.
        assert jobs.add.enqueue(x=1).wait(timeout=30).result == 2
        assert worker.stop() == 0
    assert not WorkerHeartbeat.objects.filter(last_seen_at__gt=timezone.now()).exists()


def test_job_that_ignores_its_cancellation_is_cancelled_after_the_grace(
    worker_env: Env, tmp_path: Path
) -> None:
    touched = tmp_path / "running"
    with WorkerProcess(worker_env, **FAST) as worker:
        worker.wait_until_started()
        job = dangerous.ignore_cancellation.enqueue(touch=str(touched))
        wait_until(touched.exists)

        assert job.cancel() == "requested"
        requested_at = time.monotonic()
        assert Job.objects.get(pk=job.pk).status == "running"
        wait_until(lambda: Job.objects.get(pk=job.pk).status == "cancelled")

        # The request arrives by NOTIFY, on SQLite with the next heartbeat.
        assert time.monotonic() - requested_at < 0.5 + GRACE + 1.5
        job.refresh_from_db()
        assert (job.error, job.lease_token) == ("cancelled while running", 2)
        assert jobs.add.enqueue(x=1).wait(timeout=30).result == 2


def test_retry_of_a_job_that_hung_follows_its_backoff(worker_env: Env) -> None:
    with WorkerProcess(worker_env, **FAST) as worker:
        worker.wait_until_started()
        job = dangerous.hang_in_c.using(max_attempts=2, backoff=600).enqueue()

        wait_until(lambda: Job.objects.get(pk=job.pk).status == "scheduled")
        job.refresh_from_db()
        assert job.attempts == 1
        assert 500 < (job.run_at - timezone.now()).total_seconds() < 600


def test_many_hanging_jobs_do_not_stop_the_others(
    worker_env: Env, tmp_path: Path
) -> None:
    ledger = str(tmp_path / "ledger")
    specs = [JobSpec("testapp.hang_in_c") for _ in range(3)]
    specs += [JobSpec("testapp.hang_with_the_lock") for _ in range(2)]
    specs += [dangerous.note.spec(ledger=ledger) for _ in range(100)]
    Job.objects.enqueue_many(specs)
    with WorkerProcess(worker_env, "--processes", "2", **FAST):
        wait_until(
            lambda: (
                DeadJob.objects.count() == 5
                and Job.objects.counts()["succeeded"] == 100
            ),
            timeout=60,
        )
    assert set(DeadJob.objects.values_list("reason", flat=True)) == {"timeout"}
