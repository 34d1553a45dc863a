"""A worker and a web process behind PgBouncer, in session and in transaction mode."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from django.db import connection

from django_jobqueue import Job
from tests.pgbouncer import PgBouncer
from tests.processes import WorkerProcess, run_burst
from tests.testapp import jobs
from tests.testapp.models import Effect

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgresql,
    pytest.mark.pgbouncer,
    pytest.mark.once,
    pytest.mark.slow,
]
Env = dict[str, str]
# Enqueue like a web process: one by one, in transactions, with keys, and in bulk.
ENQUEUE = """
import django; django.setup()
from django.db import transaction
from django_jobqueue import Job, JobSpec
from tests.testapp import jobs
for number in range(50):
    jobs.leave_effect.enqueue(name=f"one {number}")
with transaction.atomic():
    for number in range(50):
        jobs.leave_effect.using(unique_key=str(number)).enqueue(name=f"key {number}")
specs = [JobSpec("testapp.leave_effect", {"name": f"bulk {n}"}) for n in range(1900)]
Job.objects.enqueue_many(specs)
"""


@pytest.fixture(params=["session", "transaction"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pooled_env(worker_env: Env, mode: str) -> Iterator[Env]:
    size = 40 if mode == "session" else 4
    with PgBouncer(os.environ["DATABASE_URL"], mode=mode, size=size) as pooler:
        yield {**worker_env, "DATABASE_URL": pooler.url}


def test_2000_jobs_go_through_the_pooler(pooled_env: Env, mode: str) -> None:
    subprocess.run([sys.executable, "-c", ENQUEUE], env=pooled_env, check=True)
    assert Job.objects.count() == 2000
    atomic = jobs.leave_effect_atomically.enqueue(name="atomic")

    log = run_burst(pooled_env, "--processes", "2", "--concurrency", "4")

    assert Effect.objects.count() == 2001
    # The atomic job has enqueued another one.
    assert Job.objects.counts()["succeeded"] == 2002
    assert atomic.wait(1).status == "succeeded"
    assert log.count("a pooler in transaction mode") == (
        2 if mode == "transaction" else 0
    )
    assert "ERROR" not in log


def test_an_idle_worker_finds_jobs_and_leaves_no_settings_behind(
    pooled_env: Env, mode: str
) -> None:
    with WorkerProcess(pooled_env, "--in-process") as worker:
        jobs.leave_effect.enqueue(name="first").wait(20)
        # In session mode it is notified; else it polls every second.
        jobs.leave_effect.enqueue(name="second").wait(5)
        with connection.cursor() as cursor:
            cursor.execute(LISTENING)
            assert bool(cursor.fetchall()) == (mode == "session")
        assert "database trouble" not in worker.read_log()


LISTENING = """
    SELECT pid
    FROM pg_stat_activity
    WHERE
        datname = current_database()
        AND application_name = 'jobqueue listen'
        AND query = 'LISTEN jobqueue'
"""
