"""Jobs that kill their process are charged, isolated and end dead; others succeed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from django_jobqueue import DeadJob, Job
from django_jobqueue.models import Attempt, WorkerHeartbeat
from tests.processes import WorkerProcess
from tests.testapp import dangerous, jobs
from tests.testapp.waiting_job import enqueue_waiting_job
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Env = dict[str, str]
FAST = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.5", "JOBQUEUE_HEARTBEAT_TTL": "3"}

CRASHING = [
    (dangerous.segfault, "SIGSEGV"),
    (dangerous.abort, "SIGABRT"),
    (dangerous.exit_at_once, "code 3"),
    (dangerous.kill_process, "SIGKILL"),
    (dangerous.eat_memory, "SIGSEGV"),
    (dangerous.exit_at_once, "code 3"),
]


@pytest.mark.timeout(300)
def test_crashing_jobs_die_of_three_crashes_and_harm_no_other_job(
    worker_env: Env, tmp_path: Path
) -> None:
    ledger = str(tmp_path / "ledger")
    good = [dangerous.note.spec(ledger=ledger, seconds=0.01) for _ in range(300)]
    good += [dangerous.note_async.spec(ledger=ledger, seconds=0.01) for _ in range(300)]
    specs: list[Any] = list(good)
    crashing = {}
    for number, (handler, cause) in enumerate(CRASHING):
        spec = handler.spec()
        crashing[spec.id] = cause
        specs.insert(50 + 100 * number, spec)
    Job.objects.enqueue_many(specs)

    with WorkerProcess(worker_env, "--processes", "2", **FAST):
        wait_until(
            lambda: (
                DeadJob.objects.count() == len(crashing)
                and Job.objects.counts()["succeeded"] == len(good)
            ),
            timeout=250,
        )

    for dead in DeadJob.objects.all():
        assert (dead.reason, dead.crashes) == ("crashed", 3)
        assert crashing[dead.pk] in dead.error
        attempts = Attempt.objects.filter(job_id=dead.pk)
        assert attempts.filter(outcome="crashed").count() == 3
    # A job that ran in the same process as a crashing one started again, but was not
    # charged an attempt, and its crash is cleared.
    assert set(Job.objects.values_list("attempts", "crashes", "isolate")) == {
        (1, 0, False)
    }


def test_suspect_that_does_not_crash_again_succeeds_alone(
    worker_env: Env, tmp_path: Path
) -> None:
    job = dangerous.crash_unless_alone.enqueue(touch=str(tmp_path / "crashed"))
    with WorkerProcess(worker_env, **FAST) as worker:
        done = job.wait(timeout=60)
        assert (done.attempts, done.crashes, done.isolate) == (2, 0, False)
        worker.wait_until_logged("was killed by SIGKILL")
        # The child for suspects leaves no row when the worker has stopped.
        assert worker.stop() == 0


def test_job_of_one_attempt_is_dead_after_one_crash(worker_env: Env) -> None:
    job = dangerous.crash_once_only.enqueue()
    with WorkerProcess(worker_env, **FAST):
        dead = wait_until(lambda: DeadJob.objects.filter(pk=job.pk).first())
    assert (dead.reason, dead.attempts, dead.crashes) == ("crashed", 1, 1)
    assert "SIGKILL" in dead.error


@pytest.mark.postgresql
def test_job_of_one_attempt_that_has_run_is_not_started_again(
    worker_env: Env, tmp_path: Path
) -> None:
    """The process dies between the return of the handler and the write of its end."""
    handler = jobs.ignore_everything.using(max_attempts=1)
    waiting = enqueue_waiting_job(tmp_path, handler=handler)
    job = waiting.job
    with WorkerProcess(worker_env, **FAST):
        waiting.wait_until_started()
        wait_until(lambda: WorkerHeartbeat.objects.get().running == 1)
        with transaction.atomic():
            # Its end cannot be written while this transaction locks the row.
            Job.objects.select_for_update().get(pk=job.pk)
            waiting.let_end()
            wait_until(lambda: WorkerHeartbeat.objects.get().running == 0)
            os.kill(WorkerHeartbeat.objects.get().pid, signal.SIGKILL)
        dead = wait_until(lambda: DeadJob.objects.filter(pk=job.pk).first())
    assert (dead.reason, dead.attempts, dead.crashes) == ("crashed", 1, 1)


def test_suspects_of_another_host_are_found(worker_env: Env) -> None:
    """A suspect whose supervisor is gone is run by any other worker."""
    job = jobs.add.enqueue(x=1)
    Job.objects.filter(pk=job.pk).update(isolate=True, crashes=1, lease_token=1)
    with WorkerProcess(worker_env, **FAST):
        done = job.wait(timeout=60)
    assert (done.result, done.crashes, done.isolate) == (2, 0, False)
