"""A worker that cannot say that it lives begins nothing, and one that lives is left
alone, whatever its jobs do; loops that are stuck end their process."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from django_jobqueue import Job
from django_jobqueue.lifecycle.database import get_database
from django_jobqueue.models import Attempt, WorkerHeartbeat
from django_jobqueue.worker.watchdog import EXIT_CODE
from tests.gate import make_gate, make_tcp_gate
from tests.processes import WorkerProcess
from tests.testapp import dangerous, jobs
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Env = dict[str, str]
BEAT = 0.5
TTL = 3.0
FAST = {
    "JOBQUEUE_HEARTBEAT_INTERVAL": str(BEAT),
    "JOBQUEUE_HEARTBEAT_TTL": str(TTL),
    # A loop looks for the database more often than a busy machine needs.
    "JOBQUEUE_TEST_CONSTANTS": "loop.LONGEST_PAUSE=0.2",
}
# The second mode knows nothing of databases: it is seen on one of them.
in_both_modes = pytest.mark.parametrize(
    "mode",
    [
        pytest.param((), id="supervised"),
        pytest.param(("--in-process",), id="in-process", marks=pytest.mark.postgresql),
    ],
)


def read_silence(**conditions: object) -> timedelta:
    """Return how long ago a worker was heard of."""
    row = WorkerHeartbeat.objects.get(**conditions)
    return get_database().read_clock(None) - row.last_seen_at


def is_fenced() -> bool:
    """Tell whether the only worker has not been heard of until two beats before the
    TTL; its claim loop looks four times a second."""
    return read_silence() > timedelta(seconds=TTL - 2 * BEAT + 0.3)


def has_group(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def start_stubborn_job(folder: Path, name: str = "job") -> Job:
    """Enqueue a job that runs until `end_job`, and wait until it does."""
    started, end = folder / f"{name} started", folder / f"{name} end"
    job = jobs.ignore_everything.using(queue=name).enqueue(
        touch=str(started), until=str(end)
    )
    wait_until(started.exists)
    return job


def end_job(folder: Path, name: str = "job") -> None:
    (folder / f"{name} end").touch()


@in_both_modes
def test_worker_that_nobody_hears_begins_nothing(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    silence = tmp_path / "silence"
    env = {**worker_env, **FAST, "JOBQUEUE_TEST_HEART": str(silence)}
    with WorkerProcess(env, *mode) as worker:
        worker.wait_until_started()
        [pid] = WorkerHeartbeat.objects.values_list("pid", flat=True)
        running = start_stubborn_job(tmp_path)
        silence.touch()
        wait_until(is_fenced)

        # There is room for it, and only the heart is stopped.
        late = jobs.add.enqueue(x=1)
        end_job(tmp_path)
        # What runs may end.
        done = running.wait(timeout=20)
        assert (done.status, done.attempts, done.lease_token) == ("succeeded", 1, 1)
        time.sleep(1)
        late.refresh_from_db()
        assert (late.status, late.lease_token) == ("pending", 0)

        silence.unlink()
        done = late.wait(timeout=20)
        assert (done.result, done.lease_token, done.lost) == (2, 1, 0)
        assert [row.pid for row in WorkerHeartbeat.objects.all()] == [pid]
        assert worker.stop() == 0


@in_both_modes
def test_claims_that_had_not_started_are_dropped(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    silence = tmp_path / "silence"
    env = {**worker_env, **FAST, "JOBQUEUE_TEST_HEART": str(silence)}
    specs = [jobs.sleep_briefly.spec(seconds=0.01) for _ in range(4000)]
    with WorkerProcess(env, *mode, "--concurrency", "4") as worker:
        worker.wait_until_started()
        Job.objects.enqueue_many(specs)
        wait_until(lambda: Job.objects.counts()["succeeded"] > 20)
        silence.touch()
        wait_until(is_fenced)

        # A claim that was on its way is given back as well.
        time.sleep(1)
        wait_until(lambda: Job.objects.counts()["running"] == 0)
        # It had claimed more than it could start: short jobs are claimed in advance.
        assert Attempt.objects.filter(outcome="released").exists()
        left = Job.objects.counts()["pending"]
        assert left > 0
        time.sleep(1)
        assert Job.objects.counts()["pending"] == left
        assert set(Job.objects.values_list("status", "attempts", "error")) == {
            ("succeeded", 1, ""),
            ("pending", 0, ""),
        }

        silence.unlink()
        wait_until(lambda: Job.objects.counts()["pending"] < left)
        assert worker.stop() == 0


@pytest.mark.postgresql
def test_worker_whose_row_is_locked_begins_nothing(
    worker_env: Env, tmp_path: Path
) -> None:
    """The supervisor's connection waits for somebody's transaction, no other does."""
    import psycopg
    from django.db import connection

    with WorkerProcess(worker_env, **FAST) as worker:
        worker.wait_until_started()
        running = start_stubborn_job(tmp_path)
        with psycopg.connect(**connection.get_connection_params()) as other:
            other.execute("SELECT 1 FROM jobqueue_workerheartbeat FOR UPDATE")
            wait_until(is_fenced)
            late = jobs.add.enqueue(x=1)
            end_job(tmp_path)
            assert running.wait(timeout=20).attempts == 1
            time.sleep(1)
            late.refresh_from_db()
            assert (late.status, late.lease_token) == ("pending", 0)
        assert late.wait(timeout=20).lease_token == 1
        assert worker.stop() == 0


@pytest.mark.postgresql
def test_first_one_back_after_an_outage_rescues_nobody_who_lives(
    worker_env: Env, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        gates = [stack.enter_context(make_tcp_gate(worker_env)) for _ in range(2)]
        running = []
        for name, gate in zip(("early", "late"), gates, strict=True):
            worker = WorkerProcess(gate.env, "--name", name, "--queues", name, **FAST)
            stack.enter_context(worker).wait_until_started()
            running.append(start_stubborn_job(tmp_path, name))
        for gate in gates:
            gate.shut()
        wait_until(lambda: read_silence(name="early").total_seconds() > TTL)
        wait_until(lambda: read_silence(name="late").total_seconds() > TTL)

        early, late = gates
        early.open()
        wait_until(lambda: read_silence(name="early").total_seconds() < BEAT)
        # Time enough for a rescue: every beat asks for one now.
        time.sleep(3 * BEAT)
        assert read_silence(name="late").total_seconds() > TTL
        late.open()

        for name, job in zip(("early", "late"), running, strict=True):
            end_job(tmp_path, name)
            done = job.wait(timeout=30)
            assert (done.attempts, done.lease_token, done.lost) == (1, 1, 0)
    assert not Attempt.objects.exists()


def test_first_one_back_after_an_outage_rescues_the_dead_when_it_is_steady(
    worker_env: Env, tmp_path: Path
) -> None:
    with make_gate(worker_env) as gate:
        with WorkerProcess(gate.env, "--name", "dead", **FAST) as dead:
            job = start_stubborn_job(tmp_path)
            dead.kill()
        with WorkerProcess(gate.env, "--name", "alive", **FAST) as worker:
            worker.wait_until_started()
            gate.shut()
            wait_until(lambda: read_silence(name="alive").total_seconds() > TTL)
            gate.open()
            wait_until(lambda: Job.objects.get(pk=job.pk).lost)
            rescued = Job.objects.get(pk=job.pk).run_at
            since = WorkerHeartbeat.objects.get(name="alive").beating_since
            assert rescued - since >= timedelta(seconds=TTL)
            end_job(tmp_path)
            assert job.wait(timeout=30).attempts == 1
            assert worker.stop() == 0


def test_job_that_holds_the_interpreter_is_not_rescued_from_a_live_worker(
    worker_env: Env,
) -> None:
    # The watchdog would have lost patience too, if it did not count its own ticks.
    constants = {"JOBQUEUE_TEST_CONSTANTS": "watchdog.TICK=1.0"}
    with (
        WorkerProcess(worker_env, "--queues", "other", **FAST) as other,
        WorkerProcess(worker_env, **{**FAST, **constants}) as worker,
    ):
        worker.wait_until_started()
        other.wait_until_started()
        # Older than a TTL: now it rescues whom it takes for dead.
        wait_until(lambda: read_age_of_youngest() > timedelta(seconds=TTL))
        hang = dangerous.hang_with_the_lock.using(timeout=60)
        job = hang.enqueue(seconds=int(3 * TTL))

        done = job.wait(timeout=60)

        assert (done.attempts, done.lease_token, done.lost) == (1, 1, 0)
        assert not worker.has_logged("is stuck")
        assert jobs.add.enqueue(x=1).wait(timeout=20).result == 2
        assert worker.stop() == 0
        assert other.stop() == 0


def read_age_of_youngest() -> timedelta:
    youngest = WorkerHeartbeat.objects.order_by("-beating_since")[0]
    return get_database().read_clock(None) - youngest.beating_since


@in_both_modes
def test_process_whose_claim_loop_is_stuck_ends_and_says_where(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    stuck = tmp_path / "stuck"
    constants = {"JOBQUEUE_TEST_CONSTANTS": "watchdog.TICK=1.0"}
    env = {**worker_env, **FAST, **constants, "JOBQUEUE_TEST_CLAIMS": str(stuck)}
    with WorkerProcess(env, *mode) as worker:
        worker.wait_until_started()
        stuck.touch()
        job = jobs.add.enqueue(x=1)
        wait_until(lambda: worker.has_logged("the claim loop is stuck"))
        if mode:
            assert worker.wait(timeout=10) == EXIT_CODE
        else:
            # Another child runs what the first one could not.
            assert job.wait(timeout=30).attempts == 1
            wait_until(lambda: worker.has_logged(f"child exited with code {EXIT_CODE}"))
            wait_until(lambda: worker.read_log().count("worker started") == 2)
            assert worker.stop() == 0
        log = worker.read_log()
        assert "stacks of all threads\nThread MainThread:" in log
        assert "in step_or_block" in log.partition("Thread jobqueue-claim:")[2]


def test_supervisor_whose_heart_is_stuck_ends_with_its_children(
    worker_env: Env, tmp_path: Path
) -> None:
    silence = tmp_path / "silence"
    constants = {"JOBQUEUE_TEST_CONSTANTS": "watchdog.TICK=1.0"}
    env = {**worker_env, **FAST, **constants, "JOBQUEUE_TEST_HEART": str(silence)}
    with WorkerProcess(env, is_group=True) as worker:
        worker.wait_until_started()
        silence.touch()
        assert worker.wait(timeout=30) == EXIT_CODE
        wait_until(lambda: not has_group(worker.process.pid), timeout=5)
        assert worker.has_logged("the heartbeat loop is stuck")
