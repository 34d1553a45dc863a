"""A worker works with every way in which Django keeps connections."""

from __future__ import annotations

import pytest
from django.db import connection

from django_jobqueue import DeadJob, Job, JobSpec
from tests.processes import WorkerProcess, run_burst
from tests.testapp import jobs
from tests.testapp.models import Effect
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(120),
]
Env = dict[str, str]


@pytest.mark.parametrize("age", ["0", "60", "None"])
def test_jobs_write_whatever_conn_max_age_says(worker_env: Env, age: str) -> None:
    for handler in (jobs.leave_effect, jobs.leave_effect_async):
        for number in range(40):
            handler.enqueue(name=f"{handler.name} {number}")
    jobs.leave_a_transaction_open.enqueue()

    log = run_burst(worker_env, JOBQUEUE_TEST_CONN_MAX_AGE=age)

    assert Effect.objects.count() == 80
    assert Job.objects.counts()["succeeded"] == 81
    assert "ERROR" not in log


@pytest.mark.postgresql
def test_with_djangos_pool_concurrency_is_lowered_and_logged(worker_env: Env) -> None:
    for number in range(40):
        jobs.leave_effect.enqueue(name=str(number))

    log = run_burst(worker_env, JOBQUEUE_TEST_POOL="3")

    assert Effect.objects.count() == 40
    assert "Concurrency lowered from 10 to 3" in log
    assert "ERROR" not in log


@pytest.mark.postgresql
def test_a_connection_serves_several_jobs_although_conn_max_age_is_0(
    worker_env: Env,
) -> None:
    enqueued = [jobs.return_backend_pid.enqueue() for _ in range(20)]

    run_burst(worker_env, "--concurrency", "1")

    assert len({job.wait(1).result for job in enqueued}) == 1


@pytest.mark.postgresql
def test_an_idle_thread_closes_its_connection_after_a_second(worker_env: Env) -> None:
    with WorkerProcess(worker_env) as worker:
        worker.wait_until_started()
        backend = jobs.return_backend_pid.enqueue().wait(timeout=20).result
        wait_until(lambda: not is_connected(backend), timeout=10)
        assert worker.stop() == 0


@pytest.mark.postgresql
def test_a_killed_connection_affects_no_other_job(worker_env: Env) -> None:
    with WorkerProcess(
        worker_env, "--concurrency", "1", JOBQUEUE_TEST_CONN_MAX_AGE="None"
    ) as worker:
        worker.wait_until_started()
        backend = jobs.return_backend_pid.enqueue().wait(timeout=20).result
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [backend])
        # The next job fails at the latest, and gets its attempt back.
        effect = jobs.leave_effect.enqueue(name="after").wait(timeout=30)
        assert (effect.status, effect.attempts) == ("succeeded", 1)
        assert worker.stop() == 0
    assert not DeadJob.objects.exists()


@pytest.mark.postgresql
def test_a_worker_uses_no_more_connections_than_it_promises(worker_env: Env) -> None:
    """At most one for each slot, and five of its own."""
    Job.objects.enqueue_many(
        JobSpec("testapp.leave_effect", {"name": str(n)}) for n in range(500)
    )
    most = 0
    with WorkerProcess(worker_env, "--concurrency", "4", "--burst") as worker:
        while worker.process.poll() is None:
            most = max(most, count_others())
        assert worker.wait() == 0
    assert Effect.objects.count() == 500
    assert 0 < most <= 4 + 5


def is_connected(backend: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [backend])
        return cursor.fetchone() is not None


def count_others() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])
