"""Interrupts in real workers: of handlers that log, query, report and connect."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobqueue import DeadJob, Job
from tests.processes import WorkerProcess
from tests.testapp import dangerous, jobs
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.once,
]

Env = dict[str, str]
# So long that a test fails if only the supervisor ends a job.
LONG_GRACE = {"JOBQUEUE_GRACE": "20", "JOBQUEUE_SHUTDOWN_TIMEOUT": "5"}


def test_worker_runs_on_after_two_hundred_interrupts_of_jobs_that_log(
    worker_env: Env,
) -> None:
    Job.objects.enqueue_many(dangerous.log_for_ever.spec() for _ in range(200))
    with WorkerProcess(worker_env, "--concurrency", "8", **LONG_GRACE) as worker:
        wait_until(lambda: DeadJob.objects.count() == 200, timeout=60)
        assert jobs.add.enqueue(x=1).wait(timeout=10).result == 2
        assert worker.stop() == 0
    assert set(DeadJob.objects.values_list("reason", "lease_token")) == {("timeout", 1)}


LOOPS = [
    dangerous.connect_for_ever,
    dangerous.log_without_a_pause,
    dangerous.report_for_ever,
    dangerous.swallow_errors_of_queries,
]


@pytest.mark.parametrize("pool", [False, True], ids=["no pool", "pool"])
def test_loops_that_nearly_always_hold_a_lock_are_interrupted(
    worker_env: Env, pool: bool
) -> None:
    variables: dict[str, Any] = {"JOBQUEUE_TEST_POOL": "6"} if pool else {}
    for handler in LOOPS:
        for _ in range(5):
            handler.enqueue()
    with WorkerProcess(
        worker_env, "--concurrency", "4", **LONG_GRACE, **variables
    ) as worker:
        wait_until(lambda: DeadJob.objects.count() == 20, timeout=60)
        assert jobs.leave_effect.enqueue(name="after").wait(timeout=10).result
        assert worker.stop() == 0
    # Under the token of their claim: none was ended by the supervisor.
    assert set(DeadJob.objects.values_list("reason", "lease_token")) == {("timeout", 1)}
