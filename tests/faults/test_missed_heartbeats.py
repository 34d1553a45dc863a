"""Workers whose heartbeats are missed, and processes whose loops are stuck.

A worker without confirmed heartbeats starts no job. A live worker keeps its jobs,
whatever they do. A stuck loop ends its process.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from django_jobqueue import Job
from django_jobqueue.models import Attempt, WorkerHeartbeat
from django_jobqueue.storage.database import get_database
from django_jobqueue.worker.health.watchdog import EXIT_CODE
from tests.gate import make_gate, make_tcp_gate
from tests.processes import WorkerProcess, is_alive, list_children
from tests.testapp import dangerous, jobs
from tests.testapp.waiting_job import WaitingJob, enqueue_waiting_job
from tests.waiting import wait_until

from .heartbeats import wait_for_heartbeats

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Env = dict[str, str]
BEAT_SECONDS = 0.5
TTL_SECONDS = 3.0
# So many that the claim loop would have claimed a pending job: it polls every 0.25 s.
CLAIM_STEPS = 4
FAST = {
    "JOBQUEUE_HEARTBEAT_INTERVAL": str(BEAT_SECONDS),
    "JOBQUEUE_HEARTBEAT_TTL": str(TTL_SECONDS),
    # A loop tries the database again sooner, to make the tests faster.
    "JOBQUEUE_TEST_CONSTANTS": "loop.MAX_RETRY_PAUSE_SECONDS=0.2",
}
# The second mode does not depend on the database: it runs on one of them.
in_both_modes = pytest.mark.parametrize(
    "mode",
    [
        pytest.param((), id="supervised"),
        pytest.param(("--in-process",), id="in-process", marks=pytest.mark.postgresql),
    ],
)


def read_silence(**conditions: object) -> timedelta:
    """Return how long ago a worker sent its last heartbeat."""
    row = WorkerHeartbeat.objects.get(**conditions)
    return get_database().read_clock(None) - row.last_seen_at


def is_fenced() -> bool:
    """Return whether the only worker must have stopped claiming.

    It does so two heartbeats before the TTL; its claim loop checks every 0.25 s.
    """
    return read_silence() > timedelta(seconds=TTL_SECONDS - 2 * BEAT_SECONDS + 0.3)


class WorkerWithoutHeartbeats:
    """The environment of a worker whose heartbeats a test can stop."""

    def __init__(self, worker_env: Env, folder: Path) -> None:
        self._stopped, self._steps = folder / "no heartbeats", folder / "claim steps"
        self.env = {
            **worker_env,
            **FAST,
            "JOBQUEUE_TEST_HEARTBEAT": str(self._stopped),
            "JOBQUEUE_TEST_STEPS": str(self._steps),
        }

    def stop_heartbeats(self) -> None:
        self._stopped.touch()

    def resume_heartbeats(self) -> None:
        self._stopped.unlink()

    def wait_for_claim_steps(self) -> None:
        """Wait until the claim loop has had the time to claim a pending job."""
        enough = self._steps.stat().st_size + CLAIM_STEPS
        wait_until(lambda: self._steps.stat().st_size >= enough)


def start_waiting_job(folder: Path, name: str = "job") -> WaitingJob:
    """Start a job in the queue `name`."""
    handler = jobs.ignore_everything.using(queue=name)
    waiting = enqueue_waiting_job(folder, name, handler=handler)
    waiting.wait_until_started()
    return waiting


@in_both_modes
def test_worker_without_heartbeats_starts_no_job(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    faulty = WorkerWithoutHeartbeats(worker_env, tmp_path)
    with WorkerProcess(faulty.env, *mode) as worker:
        worker.wait_until_started()
        [pid] = WorkerHeartbeat.objects.values_list("pid", flat=True)
        running = start_waiting_job(tmp_path)
        faulty.stop_heartbeats()
        wait_until(is_fenced)

        # There is a free slot, and only the heartbeats are stopped.
        late = jobs.add.enqueue(x=1)
        running.let_end()
        # A running job may end.
        done = running.job.wait(timeout=20)
        assert (done.status, done.attempts, done.lease_token) == ("succeeded", 1, 1)
        faulty.wait_for_claim_steps()
        late.refresh_from_db()
        assert (late.status, late.lease_token) == ("pending", 0)

        faulty.resume_heartbeats()
        done = late.wait(timeout=20)
        assert (done.result, done.lease_token, done.lost) == (2, 1, 0)
        assert [row.pid for row in WorkerHeartbeat.objects.all()] == [pid]
        assert worker.stop() == 0


@in_both_modes
def test_claims_that_had_not_started_are_released(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    faulty = WorkerWithoutHeartbeats(worker_env, tmp_path)
    specs = [jobs.sleep_briefly.spec(seconds=0.01) for _ in range(4000)]
    with WorkerProcess(faulty.env, *mode, "--concurrency", "4") as worker:
        worker.wait_until_started()
        Job.objects.enqueue_many(specs)
        wait_until(lambda: Job.objects.counts()["succeeded"] > 20)
        faulty.stop_heartbeats()
        wait_until(is_fenced)

        # A claim that was under way is released as well.
        faulty.wait_for_claim_steps()
        wait_until(lambda: Job.objects.counts()["running"] == 0)
        # It had claimed more than it could start: short jobs are prefetched.
        assert Attempt.objects.filter(outcome="released").exists()
        left = Job.objects.counts()["pending"]
        assert left > 0
        faulty.wait_for_claim_steps()
        assert Job.objects.counts()["pending"] == left
        assert set(Job.objects.values_list("status", "attempts", "error")) == {
            ("succeeded", 1, ""),
            ("pending", 0, ""),
        }

        faulty.resume_heartbeats()
        wait_until(lambda: Job.objects.counts()["pending"] < left)
        assert worker.stop() == 0


@pytest.mark.postgresql
def test_worker_whose_row_is_locked_starts_no_job(
    worker_env: Env, tmp_path: Path
) -> None:
    """The supervisor's connection waits for another transaction; no other does."""
    import psycopg
    from django.db import connection

    faulty = WorkerWithoutHeartbeats(worker_env, tmp_path)
    with WorkerProcess(faulty.env) as worker:
        worker.wait_until_started()
        running = start_waiting_job(tmp_path)
        with psycopg.connect(**connection.get_connection_params()) as other:
            other.execute("SELECT 1 FROM jobqueue_workerheartbeat FOR UPDATE")
            wait_until(is_fenced)
            late = jobs.add.enqueue(x=1)
            running.let_end()
            assert running.job.wait(timeout=20).attempts == 1
            faulty.wait_for_claim_steps()
            late.refresh_from_db()
            assert (late.status, late.lease_token) == ("pending", 0)
        assert late.wait(timeout=20).lease_token == 1
        assert worker.stop() == 0


@pytest.mark.postgresql
def test_first_worker_back_after_an_outage_does_not_rescue_from_live_workers(
    worker_env: Env, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        gates = [stack.enter_context(make_tcp_gate(worker_env)) for _ in range(2)]
        running = []
        for name, gate in zip(("early", "late"), gates, strict=True):
            worker = WorkerProcess(gate.env, "--name", name, "--queues", name, **FAST)
            stack.enter_context(worker).wait_until_started()
            running.append(start_waiting_job(tmp_path, name))
        for gate in gates:
            gate.shut()
        wait_until(lambda: read_silence(name="early").total_seconds() > TTL_SECONDS)
        wait_until(lambda: read_silence(name="late").total_seconds() > TTL_SECONDS)

        early, late = gates
        early.open()
        # Time enough for a rescue: each of these heartbeats would ask for one.
        wait_for_heartbeats(4, name="early")
        assert read_silence(name="late").total_seconds() > TTL_SECONDS
        late.open()

        for waiting in running:
            waiting.let_end()
            done = waiting.job.wait(timeout=30)
            assert (done.attempts, done.lease_token, done.lost) == (1, 1, 0)
    assert not Attempt.objects.exists()


def test_first_worker_back_after_an_outage_rescues_from_the_dead_after_a_ttl(
    worker_env: Env, tmp_path: Path
) -> None:
    with make_gate(worker_env) as gate:
        with WorkerProcess(gate.env, "--name", "dead", **FAST) as dead:
            waiting = start_waiting_job(tmp_path)
            dead.kill()
        job = waiting.job
        with WorkerProcess(gate.env, "--name", "alive", **FAST) as worker:
            worker.wait_until_started()
            gate.shut()
            wait_until(lambda: read_silence(name="alive").total_seconds() > TTL_SECONDS)
            gate.open()
            wait_until(lambda: Job.objects.get(pk=job.pk).lost)
            rescued = Job.objects.get(pk=job.pk).run_at
            since = WorkerHeartbeat.objects.get(name="alive").beating_since
            assert rescued - since >= timedelta(seconds=TTL_SECONDS)
            waiting.let_end()
            assert job.wait(timeout=30).attempts == 1
            assert worker.stop() == 0


def test_job_that_holds_the_interpreter_lock_is_not_rescued_from_a_live_worker(
    worker_env: Env,
) -> None:
    # The watchdog would report a stuck loop too, if it did not count its own ticks.
    constants = {"JOBQUEUE_TEST_CONSTANTS": "health.watchdog.TICK_SECONDS=1.0"}
    with (
        WorkerProcess(worker_env, "--queues", "other", **FAST) as other,
        WorkerProcess(worker_env, **{**FAST, **constants}) as worker,
    ):
        worker.wait_until_started()
        other.wait_until_started()
        # Older than a TTL: from now on it rescues from workers that seem dead.
        wait_until(lambda: read_age_of_youngest() > timedelta(seconds=TTL_SECONDS))
        hang = dangerous.hang_with_the_lock.using(timeout=60)
        job = hang.enqueue(seconds=int(3 * TTL_SECONDS))

        done = job.wait(timeout=60)

        assert (done.attempts, done.lease_token, done.lost) == (1, 1, 0)
        assert jobs.add.enqueue(x=1).wait(timeout=20).result == 2
        assert worker.stop() == 0
        assert not worker.has_logged("is stuck")
        assert other.stop() == 0


def read_age_of_youngest() -> timedelta:
    youngest = WorkerHeartbeat.objects.order_by("-beating_since")[0]
    return get_database().read_clock(None) - youngest.beating_since


@in_both_modes
def test_process_whose_claim_loop_is_stuck_exits_and_logs_its_stacks(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    stuck = tmp_path / "stuck"
    constants = {"JOBQUEUE_TEST_CONSTANTS": "health.watchdog.TICK_SECONDS=1.0"}
    env = {**worker_env, **FAST, **constants, "JOBQUEUE_TEST_CLAIMS": str(stuck)}
    with WorkerProcess(env, *mode) as worker:
        worker.wait_until_started()
        stuck.touch()
        job = jobs.add.enqueue(x=1)
        worker.wait_until_logged("the claim loop is stuck")
        if mode:
            assert worker.wait(timeout=10) == EXIT_CODE
        else:
            # Another child runs the job that the first one could not.
            assert job.wait(timeout=30).attempts == 1
            worker.wait_until_logged(f"child exited with code {EXIT_CODE}")
            wait_until(lambda: worker.read_log().count("worker started") == 2)
            assert worker.stop() == 0
        log = worker.read_log()
        assert "stacks of all threads\nThread MainThread:" in log
        assert "in step_or_block" in log.partition("Thread jobqueue-claim:")[2]


def test_supervisor_whose_heartbeat_loop_is_stuck_exits_with_its_children(
    worker_env: Env, tmp_path: Path
) -> None:
    faulty = WorkerWithoutHeartbeats(worker_env, tmp_path)
    constants = {"JOBQUEUE_TEST_CONSTANTS": "health.watchdog.TICK_SECONDS=1.0"}
    with WorkerProcess(faulty.env, **constants) as worker:
        worker.wait_until_started()
        children = list_children(worker.process.pid)
        faulty.stop_heartbeats()
        assert worker.wait(timeout=30) == EXIT_CODE
        wait_until(lambda: not any(map(is_alive, children)))
        assert worker.has_logged("the heartbeat loop is stuck")
