"""Sequences of signals, and what must not keep a worker from exiting."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from django_jobqueue import Job
from django_jobqueue.models import WorkerHeartbeat
from tests.gate import make_gate, make_tcp_gate
from tests.processes import WorkerProcess
from tests.testapp import dangerous, leftover_jobs
from tests.testapp.waiting_job import WaitingJob, enqueue_waiting_job
from tests.waiting import wait_until

from .heartbeats import wait_for_heartbeats

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Env = dict[str, str]
# The second mode does not depend on the database: it runs on one of them.
in_both_modes = pytest.mark.parametrize(
    "mode",
    [
        pytest.param((), id="supervised"),
        pytest.param(("--in-process",), id="in-process", marks=pytest.mark.postgresql),
    ],
)
# Two seconds are promised; a busy machine may take longer. What would delay an exit
# lasts for minutes.
EXIT_SECONDS = 8.0
LONG_SHUTDOWN = {"JOBQUEUE_SHUTDOWN_TIMEOUT": "60"}
SHORT_SHUTDOWN = {"JOBQUEUE_SHUTDOWN_TIMEOUT": "1"}


def test_second_signal_is_handled_while_the_database_is_down(worker_env: Env) -> None:
    with (
        make_gate(worker_env) as gate,
        WorkerProcess(gate.env, **LONG_SHUTDOWN) as worker,
    ):
        worker.wait_until_started()
        gate.shut()
        worker.signal(signal.SIGTERM)
        # Now only the supervisor is left, with something to write.
        wait_until(lambda: worker.has_logged("child exited"))
        worker.signal(signal.SIGINT)
        assert worker.wait(timeout=EXIT_SECONDS) == 0


def test_job_that_holds_the_interpreter_lock_is_released(
    worker_env: Env, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    with WorkerProcess(worker_env, **SHORT_SHUTDOWN) as worker:
        worker.wait_until_started()
        hang = dangerous.hang_with_the_lock.using(timeout=600)
        job = hang.enqueue(touch=str(started))
        wait_until(started.exists)
        assert worker.stop(timeout=1 + EXIT_SECONDS) == 0
    job.refresh_from_db()
    assert (job.status, job.attempts, job.error) == ("pending", 0, "")
    # The supervisor killed the process itself: no rescue is needed.
    assert not WorkerHeartbeat.objects.exists()


def test_child_that_had_not_started_leaves_no_row(worker_env: Env) -> None:
    with WorkerProcess(worker_env, "--processes", "2") as worker:
        # The supervisor beats for its children before they can run anything.
        wait_until(WorkerHeartbeat.objects.exists, pause=0.005)
        assert worker.stop() == 0
    assert not WorkerHeartbeat.objects.exists()


@contextmanager
def worker_with_a_job(
    env: Env, folder: Path, mode: tuple[str, ...]
) -> Iterator[tuple[WorkerProcess, WaitingJob]]:
    """Run a worker with a job; at the end assert that the job succeeded at once."""
    waiting = enqueue_waiting_job(folder)
    fast = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.2"}
    with WorkerProcess(env, *mode, **LONG_SHUTDOWN, **fast) as worker:
        waiting.wait_until_started()
        yield worker, waiting
    job = Job.objects.get(pk=waiting.job.pk)
    assert (job.status, job.attempts, job.lease_token) == ("succeeded", 1, 1)


def assert_ends_without_a_restart(worker: WorkerProcess, waiting: WaitingJob) -> None:
    waiting.let_end()
    assert worker.wait(timeout=10) == 0
    assert worker.read_log().count("worker started") == 1


@in_both_modes
def test_term_after_hup_stops_instead_of_restarting(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    with worker_with_a_job(worker_env, tmp_path, mode) as (worker, waiting):
        worker.signal(signal.SIGHUP)
        wait_until(lambda: worker.has_logged("worker drains"))
        # The first stop request: the worker still waits for its job.
        worker.signal(signal.SIGTERM)
        assert_ends_without_a_restart(worker, waiting)


@in_both_modes
def test_hup_after_term_does_not_restart(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    """As systemd sends them with SendSIGHUP=yes."""
    with worker_with_a_job(worker_env, tmp_path, mode) as (worker, waiting):
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGHUP)
        wait_until(lambda: worker.has_logged("worker drains"))
        assert_ends_without_a_restart(worker, waiting)


@in_both_modes
def test_second_hup_interrupts_no_job(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    with worker_with_a_job(worker_env, tmp_path, mode) as (worker, waiting):
        worker.signal(signal.SIGHUP)
        wait_until(lambda: worker.has_logged("worker drains"))
        worker.signal(signal.SIGHUP)
        # Long enough for an immediate stop, if the worker made one of it.
        wait_for_heartbeats(3)
        waiting.let_end()
        wait_until(lambda: worker.read_log().count("worker started") == 2)
        assert worker.stop() == 0


# Writes a line at each start of Python, and one at the first import of our modules.
NOTE_STARTS = """
import os, sys

def note(what):
    with open({path!r}, "a") as file:
        print(os.getpid(), what, file=file)

def hook(event, args, seen=[]):
    if not seen and event == "import" and args[0].startswith("django_jobqueue."):
        seen.append(args[0])
        note("imports")

note("python")
sys.addaudithook(hook)
"""


@in_both_modes
@pytest.mark.parametrize("phase", ["stopped", "python", "imports"])
def test_signals_during_a_restart_are_handled_after_it(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...], phase: str
) -> None:
    starts = tmp_path / "starts"
    (tmp_path / "sitecustomize.py").write_text(NOTE_STARTS.format(path=str(starts)))
    path = f"{tmp_path}{os.pathsep}{worker_env['PYTHONPATH']}"
    with WorkerProcess(worker_env, *mode, PYTHONPATH=path) as worker:

        def is_reached() -> bool:
            if phase == "stopped":
                return worker.has_logged("worker stopped")
            lines = starts.read_text().splitlines()
            return lines.count(f"{worker.process.pid} {phase}") == 2

        worker.wait_until_started()
        worker.signal(signal.SIGHUP)
        wait_until(is_reached, pause=0.001)
        # SIGUSR1 must not end the new process, SIGTERM must.
        worker.signal(signal.SIGUSR1)
        worker.signal(signal.SIGTERM)
        assert worker.wait(timeout=20) == 0
    assert not WorkerHeartbeat.objects.exists()


@in_both_modes
@pytest.mark.postgresql
def test_worker_that_waits_for_a_silent_database_can_be_stopped(
    worker_env: Env, mode: tuple[str, ...]
) -> None:
    with make_tcp_gate(worker_env) as gate:
        gate.silence()
        with WorkerProcess(gate.env, *mode) as worker:
            wait_until(lambda: gate.waiting)
            worker.signal(signal.SIGTERM)
            assert worker.wait(timeout=EXIT_SECONDS) == 0


@in_both_modes
@pytest.mark.parametrize("left", ["thread", "pool"])
def test_thread_left_by_a_job_does_not_delay_the_exit(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...], left: str
) -> None:
    with WorkerProcess(worker_env, *mode, **SHORT_SHUTDOWN) as worker:
        worker.wait_until_started()
        job: Any
        if left == "thread":
            job = leftover_jobs.leave_a_thread.enqueue()
            assert job.wait(timeout=20).status == "succeeded"
        else:
            job = leftover_jobs.wait_in_a_thread.enqueue(touch=str(tmp_path / "in"))
            wait_until((tmp_path / "in").exists)
        assert worker.stop(timeout=1 + EXIT_SECONDS) == 0
    assert not WorkerHeartbeat.objects.exists()
    job.refresh_from_db()
    expected = "succeeded" if left == "thread" else "pending"
    assert (job.status, job.error) == (expected, "")
