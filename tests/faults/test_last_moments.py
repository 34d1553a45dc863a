"""Signals that come together, and what could keep a worker from its end."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from django_jobqueue import Job
from django_jobqueue.models import WorkerHeartbeat
from tests.gate import make_gate, make_tcp_gate
from tests.processes import WorkerProcess
from tests.testapp import dangerous, jobs, lingering
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Env = dict[str, str]
# The second mode knows nothing of databases: it is seen on one of them.
in_both_modes = pytest.mark.parametrize(
    "mode",
    [
        pytest.param((), id="supervised"),
        pytest.param(("--in-process",), id="in-process", marks=pytest.mark.postgresql),
    ],
)
# Two seconds are promised; the machine may be busy.
AT_ONCE = 3.0
PATIENT = {"JOBQUEUE_SHUTDOWN_TIMEOUT": "60"}
HASTY = {"JOBQUEUE_SHUTDOWN_TIMEOUT": "1"}


def test_second_signal_is_heard_although_the_database_is_away(worker_env: Env) -> None:
    with make_gate(worker_env) as gate, WorkerProcess(gate.env, **PATIENT) as worker:
        worker.wait_until_started()
        gate.shut()
        worker.signal(signal.SIGTERM)
        # Now the supervisor alone is left, with something to write.
        wait_until(lambda: worker.has_logged("child exited"))
        worker.signal(signal.SIGINT)
        assert worker.wait(timeout=AT_ONCE) == 0


def test_job_that_holds_the_interpreter_is_given_back(
    worker_env: Env,
) -> None:
    with WorkerProcess(worker_env, **HASTY) as worker:
        worker.wait_until_started()
        job = dangerous.hang_with_the_lock.using(timeout=600).enqueue()
        wait_until(lambda: Job.objects.get(pk=job.pk).status == "running")
        # Until the handler was called; after that nobody in there can tell.
        time.sleep(0.3)
        assert worker.stop(timeout=1 + AT_ONCE) == 0
    job.refresh_from_db()
    assert (job.status, job.attempts, job.error) == ("pending", 0, "")
    # It was killed by us: nobody needs to rescue anything.
    assert not WorkerHeartbeat.objects.exists()


def test_child_that_had_not_started_leaves_no_row(worker_env: Env) -> None:
    with WorkerProcess(worker_env, "--processes", "2") as worker:
        # The supervisor beats for its children before they can run anything.
        wait_until(WorkerHeartbeat.objects.exists, pause=0.005)
        assert worker.stop() == 0
    assert not WorkerHeartbeat.objects.exists()


def start_stubborn_job(folder: Path) -> Job:
    """Enqueue a job that runs until the file `end` is there, whatever it is told."""
    return jobs.ignore_everything.enqueue(
        touch=str(folder / "started"), until=str(folder / "end")
    )


@in_both_modes
def test_term_after_hup_ends_it_for_good(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    job = start_stubborn_job(tmp_path)
    with WorkerProcess(worker_env, *mode, **PATIENT) as worker:
        wait_until((tmp_path / "started").exists)
        worker.signal(signal.SIGHUP)
        wait_until(lambda: worker.has_logged("worker drains"))
        worker.signal(signal.SIGTERM)
        # The first word to stop, so it is patient.
        (tmp_path / "end").touch()
        assert worker.wait(timeout=10) == 0
        assert worker.read_log().count("worker started") == 1
    job.refresh_from_db()
    assert (job.status, job.attempts) == ("succeeded", 1)


@in_both_modes
def test_hup_after_term_does_not_start_it_anew(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    """As systemd does it with SendSIGHUP=yes."""
    job = start_stubborn_job(tmp_path)
    with WorkerProcess(worker_env, *mode, **PATIENT) as worker:
        wait_until((tmp_path / "started").exists)
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGHUP)
        wait_until(lambda: worker.has_logged("worker drains"))
        (tmp_path / "end").touch()
        assert worker.wait(timeout=10) == 0
        assert worker.read_log().count("worker started") == 1
    job.refresh_from_db()
    assert (job.status, job.attempts) == ("succeeded", 1)


@in_both_modes
def test_second_hup_cuts_no_job_off(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    job = start_stubborn_job(tmp_path)
    with WorkerProcess(worker_env, *mode, **PATIENT) as worker:
        wait_until((tmp_path / "started").exists)
        worker.signal(signal.SIGHUP)
        wait_until(lambda: worker.has_logged("worker drains"))
        worker.signal(signal.SIGHUP)
        # Long enough for a hasty end.
        time.sleep(0.5)
        (tmp_path / "end").touch()
        wait_until(lambda: worker.read_log().count("worker started") == 2)
        assert worker.stop() == 0
    job.refresh_from_db()
    assert (job.status, job.attempts, job.lease_token) == ("succeeded", 1, 1)


@in_both_modes
@pytest.mark.parametrize("pause", [0.0, 0.1, 0.3])
def test_signals_during_a_restart_are_heeded_after_it(
    worker_env: Env, mode: tuple[str, ...], pause: float
) -> None:
    with WorkerProcess(worker_env, *mode) as worker:
        worker.wait_until_started()
        worker.signal(signal.SIGHUP)
        wait_until(lambda: worker.has_logged("worker stopped"), pause=0.001)
        time.sleep(pause)
        # The one must not end the new process, the other must.
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
            assert worker.wait(timeout=AT_ONCE) == 0


@in_both_modes
@pytest.mark.parametrize("left", ["thread", "pool"])
def test_thread_that_a_job_has_left_does_not_keep_the_process(
    worker_env: Env, tmp_path: Path, mode: tuple[str, ...], left: str
) -> None:
    with WorkerProcess(worker_env, *mode, **HASTY) as worker:
        worker.wait_until_started()
        job: Any
        if left == "thread":
            job = lingering.leave_a_thread.enqueue()
            assert job.wait(timeout=20).status == "succeeded"
        else:
            job = lingering.wait_in_a_thread.enqueue(touch=str(tmp_path / "in"))
            wait_until((tmp_path / "in").exists)
        assert worker.stop(timeout=1 + AT_ONCE) == 0
    assert not WorkerHeartbeat.objects.exists()
    job.refresh_from_db()
    assert (job.status, job.error) in {("succeeded", ""), ("pending", "")}
