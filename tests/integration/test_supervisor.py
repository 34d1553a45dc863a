"""The supervisor and its children: deaths, replacements and signals, for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.models import Attempt, WorkerHeartbeat
from django_jobqueue.worker.link import OUTDATED, VARIABLE
from tests.processes import WorkerProcess, is_alive
from tests.testapp import dangerous, jobs
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    # What supervisors do on SQLite the tests of faults show.
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

        # Seen at once, not when the lease runs out.
        wait_until(lambda: Job.objects.get(pk=job.pk).crashes == 1, timeout=10)
        job.refresh_from_db()
        assert (job.status, job.attempts, job.isolate) == ("scheduled", 1, True)
        assert job.error == (
            "WorkerCrashed: The process that ran this job was killed by SIGKILL."
        ) or job.error.startswith("WorkerCrashed: ")
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
        # Claimed by the same worker, but not inside a handler.
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
        wait_until(lambda: not any(map(is_alive, pids)), timeout=5)


def test_process_is_replaced_after_so_many_jobs_without_a_gap(
    worker_env: Env, tmp_path: Path
) -> None:
    ledger = str(tmp_path / "ledger")
    with WorkerProcess(worker_env, "--max-jobs", "20", "--concurrency", "2") as worker:
        worker.wait_until_started()
        long = dangerous.note.enqueue(ledger=ledger, seconds=3.0)
        waits = []
        while len(waits) < 100:
            job = dangerous.note.enqueue(ledger=ledger).wait(timeout=30)
            assert job.started_at is not None
            waits.append((job.started_at - job.created_at).total_seconds())
            time.sleep(0.02)
        wait_until(lambda: worker.read_log().count("worker started") > 2)
        assert max(waits) < 2.0
        assert long.wait(timeout=30).attempts == 1
        assert worker.stop() == 0
    # One that had claimed jobs when its time came has given them back.
    outcomes = set(Attempt.objects.values_list("outcome", flat=True))
    assert outcomes <= {"released", "succeeded"}


def test_process_that_takes_too_much_memory_is_replaced(worker_env: Env) -> None:
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


def test_term_to_a_child_alone_drains_and_replaces_it(worker_env: Env) -> None:
    with WorkerProcess(worker_env) as worker:
        worker.wait_until_started()
        [pid] = list_pids()
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: worker.read_log().count("worker started") == 2)
        assert worker.stop() == 0


def test_worker_whose_output_nobody_reads_stops(worker_env: Env) -> None:
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "django", "runworker"],
        env=worker_env,
        stdout=writer,
        stderr=writer,
    )
    os.close(writer)
    try:
        with os.fdopen(reader) as output:
            assert "worker started" in output.readline()
        job = jobs.add.enqueue(x=1)
        assert process.wait(timeout=30) == 0
        assert job.wait(timeout=5).result == 2
    finally:
        process.kill()
        process.wait()


def test_project_that_cannot_start_is_not_started_for_ever(
    worker_env: Env, tmp_path: Path
) -> None:
    # The supervisor starts, and then its child does not.
    marker = tmp_path / "sitecustomize.py"
    marker.write_text(
        f"import os, sys\nif {VARIABLE!r} in os.environ: sys.exit('no way')\n"
    )
    path = f"{tmp_path}{os.pathsep}{worker_env['PYTHONPATH']}"
    with WorkerProcess(worker_env, PYTHONPATH=path) as worker:
        assert worker.wait(timeout=30) != 0
        assert worker.has_logged("no way")


def test_child_of_another_version_makes_the_supervisor_start_anew(
    worker_env: Env, tmp_path: Path
) -> None:
    # As if the package had been replaced: the first child finds another version.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib\n"
        f"seen = pathlib.Path({str(tmp_path / 'seen')!r})\n"
        f"if {VARIABLE!r} in os.environ and not seen.exists():\n"
        "    seen.touch()\n"
        f"    text = os.environ[{VARIABLE!r}]\n"
        f"    os.environ[{VARIABLE!r}] = text.replace('/', '/9')\n"
    )
    path = f"{tmp_path}{os.pathsep}{worker_env['PYTHONPATH']}"
    with WorkerProcess(worker_env, PYTHONPATH=path) as worker:
        worker.wait_until_started()
        assert worker.has_logged(f"child exited with code {OUTDATED}")
        assert jobs.add.enqueue(x=1).wait(timeout=30).result == 2
        assert worker.stop() == 0


REAP = """
import os, subprocess, sys
import django

django.setup()
from django_jobqueue.worker.program import reap_strangers

ours = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
stranger = os.posix_spawn("/bin/true", ["true"], {})
os.waitid(os.P_PID, stranger, os.WEXITED | os.WNOWAIT)
reap_strangers({ours.pid})
try:
    os.waitpid(stranger, 0)
except ChildProcessError:
    print("stranger gone")
ours.stdin.write(b"\\n")
ours.stdin.close()
os.waitid(os.P_PID, ours.pid, os.WEXITED | os.WNOWAIT)
reap_strangers({ours.pid})
print("ours", ours.wait())
"""


def test_first_process_of_a_container_reaps_strangers_only(worker_env: Env) -> None:
    output = subprocess.check_output(
        [sys.executable, "-c", REAP], env=worker_env, text=True
    )
    assert output.splitlines() == ["stranger gone", "ours 0"]
