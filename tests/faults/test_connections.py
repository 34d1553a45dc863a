"""Connections that end at the wrong moment.

Nothing is lost, nothing is doubled where once is promised, and no worker exits.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings
from django.db import connection

from django_jobqueue import DeadJob, Job, JobSpec
from django_jobqueue.models import WorkerHeartbeat
from tests.postgres import PostgresServer
from tests.processes import WorkerProcess
from tests.proxy import CuttingProxy
from tests.testapp import jobs, leftover_jobs
from tests.testapp.models import Effect
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

Env = dict[str, str]
KILLS = 100
RESTARTS = 3
CUTS = 20


class Ledger:
    """The jobs that were enqueued, and the checks of their ends."""

    def __init__(self) -> None:
        self.ids: set[UUID] = set()
        self.atomic: set[UUID] = set()

    def enqueue(self, count: int, *, name: str) -> None:
        """Enqueue `count` jobs of each kind: sync, async and atomic."""
        specs: list[JobSpec] = []
        for _ in range(count):
            atomic = jobs.leave_effect_atomically.spec(name=name)
            self.atomic.add(atomic.id)
            specs.append(atomic)
            specs.append(jobs.leave_effect.spec(name=name))
            specs.append(jobs.leave_effect_async.spec(name=name))
        random.shuffle(specs)
        self.ids.update(spec.id for spec in specs)
        Job.objects.enqueue_many(specs)

    def count_done(self) -> int:
        return Job.objects.filter(status="succeeded").exclude(queue="follow-up").count()

    def wait_until_done(self) -> None:
        """Wait until all have ended, and the jobs that atomic ones have enqueued."""
        total = len(self.ids) + len(self.atomic)
        wait_until(
            lambda: (
                Job.objects.filter(status="succeeded").count() >= total
                or DeadJob.objects.exists()
            ),
            timeout=120,
            pause=0.1,
        )

    def check(self, *, is_each_once: bool = False) -> None:
        """Assert that all succeeded in one attempt, atomic effects exactly once."""
        assert not DeadJob.objects.exists()
        ours = Job.objects.exclude(queue="follow-up")
        assert set(ours.values_list("pk", flat=True)) == self.ids
        ends = set(Job.objects.values_list("status", "attempts", "crashes", "lost"))
        assert ends == {("succeeded", 1, 0, 0)}
        assert Job.objects.filter(queue="follow-up").count() == len(self.atomic)
        effects = Counter(Effect.objects.values_list("job_id", flat=True))
        assert set(effects) == self.ids
        assert {effects[id] for id in self.atomic} == {1}
        if is_each_once:
            assert set(effects.values()) == {1}


def test_broken_connection_of_async_jobs_is_replaced_at_once(worker_env: Env) -> None:
    with WorkerProcess(worker_env, JOBQUEUE_TEST_CONN_MAX_AGE="None") as worker:
        worker.wait_until_started()
        backend = (
            leftover_jobs.return_backend_pid_async.enqueue().wait(timeout=20).result
        )
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [backend])
        # The first run fails, and the next one has a connection that works.
        job = leftover_jobs.return_backend_pid_async.enqueue().wait(timeout=20)
        assert (job.attempts, job.given_back) == (1, 1)
        assert job.result != backend
        assert worker.stop() == 0


def read_pids() -> set[int]:
    return set(WorkerHeartbeat.objects.values_list("pid", flat=True))


def assert_same_processes(worker: WorkerProcess, pids: set[int]) -> None:
    """Assert that the supervisor and its children are still the same processes."""
    assert worker.process.poll() is None
    assert read_pids() == pids
    log = worker.read_log()
    assert "child exited" not in log
    assert "child was killed" not in log
    # Database trouble is logged as a warning, never as an error. (If a connection ends
    # between a commit and its hook, Django logs an error itself.)
    errors = [line for line in log.splitlines() if re.search("Z (ERROR|CRIT)", line)]
    assert [line for line in errors if "in on_commit()" not in line] == []


# Choose a kind of connection first, then one of that kind: a worker has one connection
# for claims and many for jobs, and every kind must be killed sometimes.
KILL_ONE = """
    WITH kind AS MATERIALIZED (
        SELECT application_name
        FROM (
            SELECT DISTINCT application_name
            FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid()
        ) AS kinds
        ORDER BY random()
        LIMIT 1
    ),
    victim AS MATERIALIZED (
        SELECT pid, application_name
        FROM pg_stat_activity
        JOIN kind USING (application_name)
        WHERE datname = current_database() AND pid <> pg_backend_pid()
        ORDER BY random()
        LIMIT 1
    )
    SELECT application_name
    FROM victim
    WHERE pg_terminate_backend(pid)
"""


def kill_one() -> str:
    """Terminate a connection of the workers; return its application name."""
    with connection.cursor() as cursor:
        cursor.execute(KILL_ONE)
        [name] = cursor.fetchone()
    return str(name)


def test_killed_connections_do_no_harm(worker_env: Env) -> None:
    ledger = Ledger()
    killed: Counter[str] = Counter()
    with WorkerProcess(worker_env, "--processes", "2") as worker:
        wait_until(lambda: worker.read_log().count("worker started") == 2)
        pids = read_pids()
        while killed.total() < KILLS:
            # Some thousand in all, and some are always running.
            if len(ledger.ids) - (done := ledger.count_done()) < 100:
                ledger.enqueue(20, name="killed")
            wait_until(lambda done=done: ledger.count_done() > done + 20)
            killed[kill_one()] += 1
        ledger.wait_until_done()
        assert_same_processes(worker, pids)
        assert worker.stop() == 0
    own = {f"jobqueue {name}" for name in ("claim", "finish", "listen", "heartbeat")}
    assert own < set(killed)
    # The connections of the jobs are Django's, which have no name.
    assert killed[""]
    ledger.check()
    assert not WorkerHeartbeat.objects.exists()


@pytest.fixture
def server(worker_env: Env, db: None) -> Iterator[PostgresServer]:
    """Yield a server that a test may stop; Django's connection uses it meanwhile."""
    before: dict[str, Any] = dict(connection.settings_dict)
    with PostgresServer() as server:
        subprocess.run(
            [sys.executable, "-m", "django", "migrate", "--run-syncdb", "-v", "0"],
            env=use_server(worker_env, server),
            check=True,
        )
        place = {"HOST": "127.0.0.1", "PORT": server.port, "PASSWORD": ""}
        connection.close()
        connection.settings_dict |= {**place, "USER": "postgres", "NAME": "postgres"}
        try:
            yield server
        finally:
            connection.close()
            connection.settings_dict |= before


def use_server(worker_env: Env, server: PostgresServer) -> Env:
    names = {name: "postgres" for name in worker_env if "TEST_NAME" in name}
    return {**worker_env, **names, "DATABASE_URL": server.url}


def count_warnings(worker: WorkerProcess) -> int:
    return worker.read_log().count(" WARNING ")


def test_crashes_of_the_server_do_no_harm(
    worker_env: Env, server: PostgresServer
) -> None:
    ledger = Ledger()
    with WorkerProcess(
        use_server(worker_env, server), "--processes", "2", "--concurrency", "5"
    ) as worker:
        wait_until(lambda: worker.read_log().count("worker started") == 2)
        pids = read_pids()
        for _ in range(RESTARTS):
            ledger.enqueue(200, name="crashed")
            done = ledger.count_done()
            wait_until(lambda done=done: ledger.count_done() > done + 50)
            # While jobs run, like `pg_ctl stop -m immediate`.
            noticed = count_warnings(worker) + 1
            server.stop(how=signal.SIGQUIT)
            connection.close()
            wait_until(lambda noticed=noticed: count_warnings(worker) >= noticed)
            server.start()
        ledger.wait_until_done()
        assert_same_processes(worker, pids)
        assert worker.stop() == 0
    ledger.check()
    assert not WorkerHeartbeat.objects.exists()


def test_claims_without_a_reply_do_no_harm(worker_env: Env) -> None:
    ledger = Ledger()
    database = settings.DATABASES["default"]
    with CuttingProxy(database["HOST"], int(database["PORT"])) as proxy:
        url = f"postgres://{database['USER']}@127.0.0.1:{proxy.port}/postgres"
        with WorkerProcess({**worker_env, "DATABASE_URL": url}) as worker:
            worker.wait_until_started()
            pids = read_pids()
            for number in range(CUTS):
                ledger.enqueue(20, name="passed on")
                # Only the reply to a claim contains payloads.
                proxy.cut_once(f"cut {number}.".encode())
                ledger.enqueue(3, name=f"cut {number}.")
                wait_until(lambda number=number: proxy.cuts == number + 1)
            ledger.wait_until_done()
            assert_same_processes(worker, pids)
            assert worker.stop() == 0
    assert proxy.cuts == CUTS
    # None of them had started: each has run exactly once, whatever its kind.
    ledger.check(is_each_once=True)
    again = Job.objects.filter(lease_token__gt=1).values_list("payload", flat=True)
    names = {payload.get("name") for payload in again}
    assert {f"cut {number}." for number in range(CUTS)} <= names
