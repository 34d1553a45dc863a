"""Flags of `runworker` that change what a real worker does or shows."""

from __future__ import annotations

import pytest

from django_jobqueue import Job
from django_jobqueue.models import WorkerHeartbeat
from tests.processes import WorkerProcess, run_burst
from tests.testapp import jobs

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(180),
]
Env = dict[str, str]


def test_once_ends_after_one_job_and_max_jobs_after_that_many(worker_env: Env) -> None:
    for _ in range(10):
        jobs.nothing.enqueue()

    with WorkerProcess(worker_env, "--once") as worker:
        assert worker.wait() == 0
    assert Job.objects.counts()["succeeded"] == 1

    with WorkerProcess(worker_env, "--in-process", "--max-jobs", "4") as worker:
        assert worker.wait() == 0
    assert Job.objects.counts() | {"succeeded": 5, "pending": 5} == Job.objects.counts()


def test_a_worker_serves_the_queues_that_its_flags_name(worker_env: Env) -> None:
    for queue in ("high", "low", "other"):
        jobs.nothing.using(queue=queue).enqueue()

    run_burst(worker_env, "--queues", "high:4,low")
    assert list(Job.objects.waiting().values_list("queue", flat=True)) == ["other"]

    jobs.nothing.using(queue="low").enqueue()
    run_burst(worker_env, "--exclude-queues", "low")
    assert list(Job.objects.waiting().values_list("queue", flat=True)) == ["low"]


def test_a_worker_shows_its_name_and_deletes_its_row_when_it_stops(
    worker_env: Env,
) -> None:
    with WorkerProcess(worker_env, "--name", "night") as worker:
        worker.wait_until_started()
        row = WorkerHeartbeat.objects.get()
        assert (row.name, row.concurrency, row.state) == ("night", 10, "running")
        assert worker.stop() == 0
    assert not WorkerHeartbeat.objects.exists()


def test_the_row_of_a_worker_says_which_queues_it_serves(worker_env: Env) -> None:
    with WorkerProcess(worker_env, "--exclude-queues", "slow") as worker:
        worker.wait_until_started()
        row = WorkerHeartbeat.objects.get()
        assert (row.serves("mail"), row.serves("slow")) == (True, False)
        assert row.label_queues() == ["-slow"]
    WorkerHeartbeat.objects.all().delete()
    with WorkerProcess(worker_env, "--queues", "high:4,low") as worker:
        worker.wait_until_started()
        row = WorkerHeartbeat.objects.get()
        assert (row.serves("mail"), row.serves("low")) == (False, True)
        assert row.label_queues() == ["high:4", "low"]
