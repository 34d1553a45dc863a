"""The late write of a worker whose job was rescued is refused, in every transition."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from django_jobqueue import DeadJob, Job
from django_jobqueue.models import Attempt, WorkerHeartbeat
from tests.processes import WorkerProcess
from tests.testapp import jobs
from tests.testapp.models import Effect
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "business"]),
    pytest.mark.slow,
    pytest.mark.timeout(180),
]
TTL = timedelta(seconds=1)
# The worker must not detect the loss before its late write.
SLOW = {"JOBQUEUE_HEARTBEAT_INTERVAL": "60", "JOBQUEUE_HEARTBEAT_TTL": "600"}


def steal(job: Job) -> None:
    """Change a running job like a rescue and the claim of another worker."""
    taken = Job.objects.filter(pk=job.pk, status="running", lease_token=1)
    assert taken.update(lease_token=3, worker_id=uuid4())


@pytest.mark.parametrize(
    "outcome", ["success", "retry", "snooze", "cancel", "death", "progress"]
)
def test_a_late_write_is_refused_and_logged(
    worker_env: dict[str, str], tmp_path: Path, outcome: str
) -> None:
    started, go_on = tmp_path / "started", tmp_path / "go on"
    job = jobs.end_as.enqueue(outcome, touch=str(started), until=str(go_on))
    with WorkerProcess(worker_env, **SLOW) as worker:
        wait_until(started.exists)
        steal(job)
        go_on.touch()
        worker.wait_until_logged("lease lost", str(job.pk))
        if outcome == "progress":
            worker.wait_until_logged("refused=progress")
    job.refresh_from_db()
    assert (job.status, job.lease_token, job.attempts) == ("running", 3, 1)
    assert (job.progress, job.result, job.error) == (None, None, "")
    assert not Attempt.objects.exists()
    assert not DeadJob.objects.exists()


def test_a_late_release_is_refused(worker_env: dict[str, str], tmp_path: Path) -> None:
    started = tmp_path / "started"
    job = jobs.ignore_everything.enqueue(
        touch=str(started), until=str(tmp_path / "never")
    )
    with WorkerProcess(worker_env, "--shutdown-timeout", "0.1", **SLOW) as worker:
        wait_until(started.exists)
        steal(job)
        assert worker.stop() == 0
        assert worker.has_logged("lease lost")
    job.refresh_from_db()
    assert (job.status, job.lease_token) == ("running", 3)


def test_a_handler_can_check_that_it_still_owns_its_job(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    started, go_on = tmp_path / "started", tmp_path / "go on"
    lost = jobs.check_ownership.enqueue(touch=str(started), until=str(go_on))
    with WorkerProcess(worker_env, **SLOW) as worker:
        wait_until(started.exists)
        steal(lost)
        go_on.touch()
        wait_until(lambda: worker.has_logged("lease lost"))
        kept = jobs.check_ownership.enqueue(touch="", until="").wait(timeout=20)
        alike = jobs.check_ownership_async.enqueue().wait(timeout=20)
    assert (kept.result, alike.result) == (1, 1)


@pytest.mark.postgresql
def test_an_atomic_job_that_lost_its_lease_is_rolled_back(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    # Not on SQLite: the open transaction keeps other writers out.
    started, go_on = tmp_path / "started", tmp_path / "go on"
    job = jobs.leave_effect_atomically.enqueue(
        name="late", touch=str(started), until=str(go_on)
    )
    with WorkerProcess(worker_env, **SLOW) as worker:
        wait_until(started.exists)
        steal(job)
        go_on.touch()
        wait_until(lambda: worker.has_logged("lease lost"))
    job.refresh_from_db()
    assert (job.status, job.lease_token) == ("running", 3)
    assert not Effect.objects.exists()
    assert not Job.objects.filter(queue="follow-up").exists()


def test_a_handler_is_interrupted_when_its_job_was_taken_away(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    started = tmp_path / "started"
    job = jobs.ignore_everything.enqueue(
        touch=str(started), until=str(tmp_path / "never")
    )
    quick = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.1", "JOBQUEUE_HEARTBEAT_TTL": "600"}
    with WorkerProcess(worker_env, **quick) as worker:
        wait_until(started.exists)
        steal(job)
        # The next heartbeat detects it, and the handler is interrupted.
        wait_until(lambda: worker.has_logged("lease lost"))
        assert worker.stop() == 0


@pytest.mark.postgresql
def test_a_worker_that_drains_keeps_its_jobs_until_they_have_ended(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    # Not on SQLite: a process that still exists does not count as dead so soon.
    started, go_on = tmp_path / "started", tmp_path / "go on"
    job = jobs.ignore_everything.enqueue(touch=str(started), until=str(go_on))
    quick = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.2", "JOBQUEUE_HEARTBEAT_TTL": "1"}
    with WorkerProcess(worker_env, **quick) as draining:
        wait_until(started.exists)
        draining.signal(signal.SIGTERM)
        wait_until(lambda: draining.has_logged("worker drains"))
        with WorkerProcess(worker_env, **quick) as other:
            wait_until(lambda: can_rescue(state="running"))
            go_on.touch()
            assert draining.wait() == 0
            assert not other.has_logged("job rescued")
    job.refresh_from_db()
    assert (job.status, job.lease_token, job.lost) == ("succeeded", 1, 0)


def can_rescue(*, state: str) -> bool:
    """Return whether the worker in this state has been steady enough to rescue."""
    row = WorkerHeartbeat.objects.filter(state=state).first()
    return row is not None and row.last_seen_at - row.beating_since > 3 * TTL
