"""Many workers on one queue: each job runs once, no worker waits for another."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from django_jobqueue import Job, JobSpec
from django_jobqueue.models import Attempt
from tests.processes import WorkerProcess

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]


def run_workers(
    env: dict[str, str], *, workers: int, count: int, ledger: Path, **variables: str
) -> str:
    """Enqueue jobs that write to a ledger, drain them, and return all logs."""
    payload = {"path": str(ledger)}
    specs = [JobSpec("testapp.append_line", payload) for _ in range(count)]
    assert Job.objects.enqueue_many(specs).created == count
    with ExitStack() as stack:
        running = [
            stack.enter_context(WorkerProcess(env, "--burst", **variables))
            for _ in range(workers)
        ]
        for worker in running:
            assert worker.wait(timeout=300) == 0
        logs = "\n".join(worker.read_log() for worker in running)
    runs = Counter(ledger.read_text().split())
    assert set(runs) == {str(spec.id) for spec in specs}
    assert set(runs.values()) == {1}
    assert Job.objects.counts() | {"succeeded": count} == Job.objects.counts()
    # On a busy machine a job that cannot start within a second is released.
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    outcomes = Attempt.objects.values_list("outcome", flat=True)
    assert set(outcomes) <= {"released", "succeeded"}
    return logs


@pytest.mark.postgresql
def test_two_workers_run_20000_jobs_once_each(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    logs = run_workers(worker_env, workers=2, count=20_000, ledger=tmp_path / "ledger")

    assert "ERROR" not in logs
    assert "WARNING" not in logs


@pytest.mark.postgresql
def test_eight_workers_share_a_queue_without_a_deadlock(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    logs = run_workers(worker_env, workers=8, count=8_000, ledger=tmp_path / "ledger")

    assert "deadlock" not in logs
    assert "ERROR" not in logs


@pytest.mark.sqlite
def test_four_workers_share_a_sqlite_file_and_never_find_it_locked(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    # Settings as startproject writes them: the worker sets the options it needs.
    logs = run_workers(
        worker_env,
        workers=4,
        count=4_000,
        ledger=tmp_path / "ledger",
        JOBQUEUE_TEST_NO_OPTIONS="1",
    )

    assert "database is locked" not in logs
    assert "ERROR" not in logs


@pytest.mark.sqlite
def test_two_workers_run_5000_jobs_once_each_on_sqlite(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    logs = run_workers(worker_env, workers=2, count=5_000, ledger=tmp_path / "ledger")

    assert "database is locked" not in logs
