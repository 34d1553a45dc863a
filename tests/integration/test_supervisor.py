"""The supervisor and its children in real processes: deaths, restarts, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.models import Attempt, DeadJob, WorkerHeartbeat
from django_jobqueue.worker.supervision.supervised_heartbeat import (
    CHILD_VARIABLE,
    EXIT_OUTDATED,
)
from tests.processes import WorkerProcess, is_alive, list_children
from tests.testapp import dangerous, jobs
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    # On SQLite the tests in faults/ run supervisors.
    pytest.mark.postgresql,
]

Env = dict[str, str]
FAST = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.5", "JOBQUEUE_HEARTBEAT_TTL": "3"}


def list_pids() -> list[int]:
    return list(WorkerHeartbeat.objects.values_list("pid", flat=True))


def test_each_process_is_a_worker_and_leaves_no_row(worker_env: Env) -> None:
    with WorkerProcess(worker_env, "--processes", "3", "--name", "trio") as worker:
        wait_until(lambda: worker.read_log().count("worker started") == 3)
        rows = WorkerHeartbeat.objects.all()
        assert len({row.pid for row in rows} | {worker.process.pid}) == 4
        assert {(row.name, row.state) for row in rows} == {("trio", "running")}
        assert worker.stop() == 0
    assert not WorkerHeartbeat.objects.exists()


def test_killed_child_is_replaced_and_its_job_charged(
    worker_env: Env, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    job = jobs.ignore_everything.enqueue(
        touch=str(started), until=str(tmp_path / "end")
    )
    with WorkerProcess(worker_env) as worker:
        wait_until(started.exists)
        [pid] = list_pids()
        os.kill(pid, signal.SIGKILL)

        # Detected at once, not when the lease expires.
        wait_until(lambda: Job.objects.get(pk=job.pk).crashes == 1, timeout=10)
        job.refresh_from_db()
        assert (job.status, job.attempts, job.isolate) == ("scheduled", 1, True)
        assert job.error.startswith("WorkerCrashed: ")
        assert "SIGKILL" in job.error
        (tmp_path / "end").touch()
        done = job.wait(timeout=30)
        assert (done.status, done.attempts, done.crashes) == ("succeeded", 2, 0)
        assert worker.stop() == 0
    outcomes = Attempt.objects.order_by("number").values_list("outcome", flat=True)
    assert list(outcomes) == ["crashed", "succeeded"]


def test_jobs_that_had_not_started_go_back_uncharged(
    worker_env: Env, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    blocker = jobs.ignore_everything.enqueue(
        touch=str(started), until=str(tmp_path / "end")
    )
    with WorkerProcess(worker_env, "--concurrency", "1") as worker:
        wait_until(started.exists)
        [pid] = list_pids()
        row = WorkerHeartbeat.objects.get()
        # Claimed by the same worker, but its handler has not started.
        other = jobs.add.using(delay=600).enqueue(x=1)
        Job.objects.filter(pk=other.pk).update(
            status="running",
            worker_id=row.pk,
            claimed_at=timezone.now(),
            lease_token=1,
            attempts=1,
        )
        os.kill(pid, signal.SIGKILL)
        done = other.wait(timeout=30)
        assert (done.result, done.attempts, done.crashes) == (2, 1, 0)
        (tmp_path / "end").touch()
        assert blocker.wait(timeout=30).status == "succeeded"
        assert worker.stop() == 0


def test_children_die_with_their_supervisor(worker_env: Env, tmp_path: Path) -> None:
    started = tmp_path / "started"
    jobs.ignore_everything.enqueue(touch=str(started), until=str(tmp_path / "never"))
    with WorkerProcess(worker_env, "--processes", "2") as worker:
        wait_until(started.exists)
        pids = wait_until(lambda: pids if len(pids := list_pids()) == 2 else None)
        worker.kill()
        wait_until(lambda: not any(map(is_alive, pids)))


def test_process_is_replaced_after_max_jobs_without_a_gap(
    worker_env: Env, tmp_path: Path
) -> None:
    ledger = str(tmp_path / "ledger")
    with WorkerProcess(worker_env, "--max-jobs", "20", "--concurrency", "2") as worker:
        worker.wait_until_started()
        long = dangerous.note.enqueue(ledger=ledger, seconds=3.0)
        waits = []
        # Until the second replacement has started, and with a limit.
        while len(waits) < 100 or worker.read_log().count("worker started") < 3:
            assert len(waits) < 5000
            job = dangerous.note.enqueue(ledger=ledger).wait(timeout=30)
            assert job.started_at is not None
            waits.append((job.started_at - job.created_at).total_seconds())
        assert max(waits) < 2.0
        assert long.wait(timeout=30).attempts == 1
        assert worker.stop() == 0
    # A process that had prefetched jobs when it was replaced has released them.
    outcomes = set(Attempt.objects.values_list("outcome", flat=True))
    assert outcomes <= {"released", "succeeded"}


def test_process_that_uses_too_much_memory_is_replaced(worker_env: Env) -> None:
    with WorkerProcess(worker_env, "--max-memory", "1M") as worker:
        wait_until(lambda: worker.read_log().count("worker started") >= 2)
        assert jobs.add.enqueue(x=1).wait(timeout=30).result == 2


def test_in_process_runs_jobs_without_a_child(worker_env: Env) -> None:
    with WorkerProcess(worker_env, "--in-process") as worker:
        worker.wait_until_started()
        assert list_pids() == [worker.process.pid]
        assert jobs.add.enqueue(x=1).wait(timeout=30).result == 2
        assert worker.stop() == 0


def test_ctrl_c_to_the_whole_group_drains_once(worker_env: Env, tmp_path: Path) -> None:
    started = tmp_path / "started"
    job = jobs.ignore_everything.enqueue(
        touch=str(started), until=str(tmp_path / "end")
    )
    with WorkerProcess(worker_env, is_group=True) as worker:
        wait_until(started.exists)
        os.killpg(worker.process.pid, signal.SIGINT)
        wait_until(lambda: worker.has_logged("worker drains"))
        (tmp_path / "end").touch()
        assert worker.wait() == 0
    job.refresh_from_db()
    assert (job.status, job.attempts) == ("succeeded", 1)


@pytest.mark.parametrize("number", ["TERM", "QUIT", "KILL", "INT"])
def test_a_job_that_signals_its_process_group_does_not_reach_the_supervisor(
    worker_env: Env, number: str
) -> None:
    with WorkerProcess(worker_env, is_group=True, **FAST) as worker:
        worker.wait_until_started()
        dangerous.signal_process_group.enqueue(number=number)
        if number != "INT":
            # The process that ran it ends, and another takes its place.
            wait_until(lambda: worker.read_log().count("worker started") >= 2)
        assert jobs.add.enqueue(x=1).wait(timeout=20).result == 2
        assert not worker.has_logged("supervisor ends")
        assert worker.stop() == 0


def test_ctrl_z_stops_all_processes_until_fg(worker_env: Env) -> None:
    with WorkerProcess(worker_env, is_group=True, **FAST) as worker:
        worker.wait_until_started()
        pids = [worker.process.pid, *list_children(worker.process.pid)]
        os.killpg(worker.process.pid, signal.SIGTSTP)
        wait_until(lambda: set(map(read_state, pids)) == {"T"})
        os.killpg(worker.process.pid, signal.SIGCONT)
        assert jobs.add.enqueue(x=1).wait(timeout=20).result == 2
        assert worker.stop() == 0


def read_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_term_to_a_child_alone_drains_and_replaces_it(worker_env: Env) -> None:
    with WorkerProcess(worker_env) as worker:
        worker.wait_until_started()
        [pid] = list_pids()
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: worker.read_log().count("worker started") == 2)
        assert worker.stop() == 0


@pytest.mark.parametrize("flags", [[], ["--in-process"]])
def test_worker_whose_output_has_no_reader_stops(
    worker_env: Env, flags: list[str]
) -> None:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "django", "runworker", *flags],
        env=worker_env,
        stdout=writer,
        stderr=writer,
    )
    os.close(writer)
    try:
        with os.fdopen(reader) as output:
            assert "worker started" in output.readline()
        job = jobs.add.enqueue(x=1)
        # Not 0: the process manager starts it again.
        assert process.wait(timeout=30) == 74
        assert job.wait(timeout=5).result == 2
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("flags", [[], ["--in-process"]])
@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)], ids=str)
def test_worker_that_is_started_with_closed_outputs_runs(
    worker_env: Env, closed: tuple[int, ...], flags: list[str]
) -> None:
    jobs.add.enqueue(x=1)
    closing = " ".join(f"{number}>&-" for number in closed)
    command = [sys.executable, "-m", "django", "runworker", "--burst", *flags]
    subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", *command],
        env=worker_env,
        timeout=30,
        check=True,
    )
    assert Job.objects.get().status == "succeeded"


def test_child_whose_log_a_job_has_broken_is_replaced(worker_env: Env) -> None:
    with WorkerProcess(worker_env, "--concurrency", "1", **FAST) as worker:
        worker.wait_until_started()
        broken = dangerous.break_log.enqueue()
        assert broken.wait(timeout=10).status == "succeeded"
        wait_until(lambda: worker.read_log().count("worker started") == 2)
        worker.wait_until_logged("logging of process")
        assert jobs.add.enqueue(x=1).wait(timeout=10).result == 2
        assert worker.stop() == 0


def test_job_that_kills_its_process_after_its_handler_is_charged(
    worker_env: Env, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    job = dangerous.exit_after_the_handler.enqueue(ledger=str(ledger))
    variables = {**FAST, "JOBQUEUE_MAX_CRASHES": "2"}
    with WorkerProcess(worker_env, "--concurrency", "2", **variables):
        wait_until(lambda: DeadJob.objects.filter(id=job.id).exists())
        assert DeadJob.objects.get(id=job.id).reason == "crashed"
        assert ledger.read_text().split() == ["start", "start"]
        assert jobs.add.enqueue(x=1).wait(timeout=10).result == 2


def test_project_that_cannot_start_ends_the_supervisor(
    worker_env: Env, tmp_path: Path
) -> None:
    # The supervisor starts, but its child does not.
    marker = tmp_path / "sitecustomize.py"
    marker.write_text(
        f"import os, sys\nif {CHILD_VARIABLE!r} in os.environ: sys.exit('no way')\n"
    )
    path = f"{tmp_path}{os.pathsep}{worker_env['PYTHONPATH']}"
    with WorkerProcess(worker_env, PYTHONPATH=path) as worker:
        assert worker.wait(timeout=30) != 0
        assert worker.has_logged("no way")


def test_child_of_another_version_makes_the_supervisor_restart(
    worker_env: Env, tmp_path: Path
) -> None:
    # Simulate an upgrade of the package: the first child finds another version.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib\n"
        f"seen = pathlib.Path({str(tmp_path / 'seen')!r})\n"
        f"if {CHILD_VARIABLE!r} in os.environ and not seen.exists():\n"
        "    seen.touch()\n"
        f"    text = os.environ[{CHILD_VARIABLE!r}]\n"
        f"    os.environ[{CHILD_VARIABLE!r}] = text.replace('/', '/9')\n"
    )
    path = f"{tmp_path}{os.pathsep}{worker_env['PYTHONPATH']}"
    with WorkerProcess(worker_env, PYTHONPATH=path) as worker:
        worker.wait_until_started()
        worker.wait_until_logged(f"child exited with code {EXIT_OUTDATED}")
        assert jobs.add.enqueue(x=1).wait(timeout=30).result == 2
        assert worker.stop() == 0


REAP = """
import os, subprocess, sys
import django

django.setup()
from django_jobqueue.worker.startup.program import reap_orphans

ours = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
orphan = os.posix_spawn("/bin/true", ["true"], {})
os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
reap_orphans({ours.pid})
try:
    os.waitpid(orphan, 0)
except ChildProcessError:
    print("orphan gone")
ours.stdin.write(b"\\n")
ours.stdin.close()
os.waitid(os.P_PID, ours.pid, os.WEXITED | os.WNOWAIT)
reap_orphans({ours.pid})
print("ours", ours.wait())
"""


def test_first_process_of_a_container_reaps_orphans_only(worker_env: Env) -> None:
    output = subprocess.check_output(
        [sys.executable, "-c", REAP], env=worker_env, text=True
    )
    assert output.splitlines() == ["orphan gone", "ours 0"]
