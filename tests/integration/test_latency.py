"""No job waits longer than necessary: an idle worker is notified of pending jobs."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection, transaction

from django_jobqueue import Job
from tests.factories import make_dead_job
from tests.processes import WorkerProcess
from tests.testapp import jobs
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(120),
]
# With LISTEN an idle worker polls every 15 s only: a job that starts sooner was
# notified. On SQLite it sees the file change, and the poll interval is the promise.
POLL = {"JOB_POLL_INTERVAL": "200"}
PROMPT_SECONDS = 5.0


def test_a_job_whose_transaction_commits_late_starts_promptly(
    worker_env: dict[str, str],
) -> None:
    with WorkerProcess(worker_env, **POLL) as worker:
        worker.wait_until_started()
        with transaction.atomic():
            late = jobs.add.enqueue(x=1)
            # Other jobs that ran meanwhile have advanced every cursor.
            if connection.vendor == "postgresql":
                other = threading.Thread(target=_run_one)
                other.start()
                other.join()
        assert late.wait(timeout=PROMPT_SECONDS).status == "succeeded"


def _run_one() -> None:
    jobs.nothing.enqueue().wait(timeout=20)
    connection.close()


def test_a_job_of_higher_priority_runs_first(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    with WorkerProcess(worker_env, "--concurrency", "1", **POLL) as worker:
        worker.wait_until_started()
        gate = jobs.ignore_everything.enqueue(
            touch=str(tmp_path / "busy"), until=str(tmp_path / "go on")
        )
        wait_until((tmp_path / "busy").exists)
        urgent = jobs.append_line.using(priority=10)
        # One commit and one notification: the worker learns of both at once.
        with transaction.atomic():
            jobs.append_line.enqueue(path=str(ledger), line="usual")
            urgent.enqueue(path=str(ledger), line="urgent")
        (tmp_path / "go on").touch()
        gate.wait(timeout=20)
        wait_until(lambda: ledger.exists() and len(ledger.read_text().split()) == 2)
    assert ledger.read_text().split() == ["urgent", "usual"]


def test_delayed_requeued_and_rescheduled_jobs_start_promptly(
    worker_env: dict[str, str],
) -> None:
    with WorkerProcess(worker_env, **POLL) as worker:
        worker.wait_until_started()
        delayed = jobs.add.using(delay=0.3).enqueue(x=1)
        assert delayed.wait(timeout=PROMPT_SECONDS).status == "succeeded"
        requeued = make_dead_job().requeue()
        assert requeued is not None
        assert requeued.wait(timeout=PROMPT_SECONDS).status == "succeeded"
        run_now = jobs.add.using(delay=3600).enqueue(x=1)
        run_now.run_now()
        assert run_now.wait(timeout=PROMPT_SECONDS).status == "succeeded"
        rescheduled = jobs.add.using(delay=3600).enqueue(x=1)
        rescheduled.reschedule(delay=0.3)
        assert rescheduled.wait(timeout=PROMPT_SECONDS).status == "succeeded"
        later = make_dead_job().requeue(delay=0.3)
        assert later is not None
        assert later.wait(timeout=PROMPT_SECONDS).status == "succeeded"


def test_a_released_job_is_taken_by_another_worker_promptly(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    started = tmp_path / "started"
    go_on = tmp_path / "go on"
    job = jobs.ignore_everything.enqueue(touch=str(started), until=str(go_on))
    with WorkerProcess(worker_env, "--shutdown-timeout", "0", **POLL) as leaving:
        wait_until(started.exists)
        with WorkerProcess(worker_env, **POLL) as staying:
            staying.wait_until_started()
            assert leaving.stop(timeout=10) == 0
            go_on.touch()
            assert job.wait(timeout=PROMPT_SECONDS).status == "succeeded"


def test_long_jobs_do_not_wait_in_a_worker_while_another_one_is_free(
    worker_env: dict[str, str],
) -> None:
    flags, seconds = ("--concurrency", "4"), 1.0
    with WorkerProcess(worker_env, *flags, **POLL) as one:
        one.wait_until_started()
        with WorkerProcess(worker_env, *flags, **POLL) as other:
            other.wait_until_started()
            Job.objects.enqueue_many(
                jobs.sleep_briefly.spec(seconds=seconds) for _ in range(24)
            )
            wait_until(lambda: Job.objects.filter(status="succeeded").count() == 24)
    rows = Job.objects.values_list("finished_by", "claimed_at", "started_at")
    for owner, claimed_at, _ in rows:
        # A job sleeps for a second at least: those that began within the last 0.9 s
        # were running when this one was claimed.
        running = rows.filter(
            finished_by=owner,
            claimed_at__lt=claimed_at,
            started_at__gt=claimed_at - timedelta(seconds=0.9 * seconds),
        )
        together = rows.filter(finished_by=owner, claimed_at=claimed_at)
        assert running.count() + together.count() <= 4
    # Both ran jobs, because neither had claimed more than it could start.
    assert len({owner for owner, _, _ in rows}) == 2


def test_a_rescued_job_is_taken_promptly(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    beats = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.2", "JOBQUEUE_HEARTBEAT_TTL": "1"}
    started, go_on = tmp_path / "started", tmp_path / "go on"
    with WorkerProcess(worker_env, **beats, **POLL) as rescuer:
        rescuer.wait_until_started()
        with WorkerProcess(worker_env, "--queues", "doomed", **beats, **POLL) as doomed:
            doomed.wait_until_started()
            job = jobs.wait_for_file.using(queue="doomed").enqueue(
                touch=str(started), until=str(go_on)
            )
            wait_until(started.exists)
            go_on.touch()
            if Job.objects.get(pk=job.pk).status == "running":
                doomed.kill()
        # A TTL until the worker counts as dead, a second until the rescuer may rescue.
        assert job.wait(timeout=PROMPT_SECONDS + 5).status == "succeeded"


def test_a_new_queue_is_served(worker_env: dict[str, str]) -> None:
    with WorkerProcess(worker_env, **POLL) as worker:
        worker.wait_until_started()
        for n in range(3):
            job = jobs.add.using(queue=f"brand-new-{n}").enqueue(x=n)
            assert job.wait(timeout=PROMPT_SECONDS).status == "succeeded"


@pytest.mark.sqlite
def test_on_sqlite_a_change_of_the_file_is_seen(worker_env: dict[str, str]) -> None:
    slow = {"JOB_POLL_INTERVAL": "60000"}
    with WorkerProcess(worker_env, **slow) as worker:
        worker.wait_until_started()
        for n in range(3):
            assert (
                jobs.add.enqueue(x=n).wait(timeout=PROMPT_SECONDS).status == "succeeded"
            )
        delayed = jobs.add.using(delay=0.3).enqueue(x=1)
        assert delayed.wait(timeout=PROMPT_SECONDS).status == "succeeded"


def test_a_freed_slot_is_filled_at_once(worker_env: dict[str, str]) -> None:
    """With a poll every minute, 20 jobs in sequence must not need 20 polls."""
    waiting = [jobs.return_pid.enqueue() for _ in range(20)]
    slow = {"JOB_POLL_INTERVAL": "60000"}
    with WorkerProcess(worker_env, "--concurrency", "1", **slow):
        for job in waiting:
            assert job.wait(timeout=PROMPT_SECONDS + 10).status == "succeeded"


def test_no_long_job_waits_in_a_worker_while_another_is_free(
    worker_env: dict[str, str],
) -> None:
    """A worker claims only as many one-second jobs as it can run at once."""
    with (
        WorkerProcess(worker_env, "--concurrency", "2", **POLL) as first,
        WorkerProcess(worker_env, "--concurrency", "2", **POLL) as second,
    ):
        first.wait_until_started()
        second.wait_until_started()
        waiting = [jobs.sleep_briefly.enqueue(seconds=1.0) for _ in range(8)]
        ended = [job.wait(timeout=30) for job in waiting]
    assert len({job.finished_by for job in ended}) == 2
    for job in ended:
        assert job.started_at is not None
        assert job.claimed_at is not None
        assert (job.started_at - job.claimed_at).total_seconds() < 0.9
