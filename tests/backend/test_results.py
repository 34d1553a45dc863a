"""Results of tasks: every state of a job as a status of django.tasks."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command

from django_jobqueue import DeadJob, Job
from django_jobqueue.backend.api import TaskResultStatus
from django_jobqueue.exceptions import JobCancelled, WorkerLost
from django_jobqueue.models import Attempt
from django_jobqueue.storage.database import get_database
from django_jobqueue.storage.lookups import is_task
from django_jobqueue.testing import run_jobs
from tests.factories import make_dead_job, make_job
from tests.processes import WorkerProcess
from tests.testapp import chores, jobs, undiscovered_tasks
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
META = {"django.tasks": {"backend": "default"}}
PATH = "tests.testapp.chores.add"


def burst() -> None:
    call_command("runworker", burst=True, verbosity=0)


def read(job: Job | DeadJob) -> Any:
    return chores.add.get_backend().get_result(str(job.pk))


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ({}, TaskResultStatus.READY),
        ({"scheduled": True}, TaskResultStatus.READY),
        ({"running": True}, TaskResultStatus.RUNNING),
        ({"succeeded": True}, TaskResultStatus.SUCCESSFUL),
        ({"cancelled": True}, TaskResultStatus.FAILED),
    ],
)
def test_each_job_status_maps_to_a_task_status(
    state: dict[str, bool], status: Any
) -> None:
    job = make_job(job_type=PATH, payload={"x": 1}, meta=META, **state)

    assert read(job).status == status


def test_a_dead_job_is_failed_and_has_an_error() -> None:
    dead = make_dead_job(job_type=PATH, meta=META, reason="lost", error="gone")

    result = read(dead)

    assert result.status == TaskResultStatus.FAILED
    assert result.job.reason == "lost"
    assert len(result.errors) == 1
    assert result.finished_at == dead.died_at


def test_a_cancelled_task_has_job_cancelled_as_its_error() -> None:
    result = chores.add.enqueue(1)
    Job.objects.get(pk=result.id).cancel()

    result.refresh()

    assert result.status == TaskResultStatus.FAILED
    [error] = result.errors
    assert error.exception_class is JobCancelled


def test_every_attempt_that_failed_is_an_error() -> None:
    result = chores.fail_as_told.using(backoff=0).enqueue("value")
    burst()

    result.refresh()

    assert [error.exception_class for error in result.errors] == [ValueError] * 2
    assert "as told" in result.errors[0].traceback
    assert (result.attempts, len(result.worker_ids)) == (2, 2)
    assert isinstance(result.job, DeadJob)


def test_discard_on_of_a_task_is_used() -> None:
    result = chores.fail_as_told.enqueue("lookup")
    burst()

    result.refresh()

    assert (result.job.reason, result.attempts) == ("discarded", 1)


def test_a_failing_atomic_task_is_rolled_back() -> None:
    good = chores.make_group.enqueue("good")
    bad = chores.make_group.enqueue("bad", fail=True)
    burst()

    good.refresh()
    bad.refresh()

    assert good.status == TaskResultStatus.SUCCESSFUL
    assert bad.status == TaskResultStatus.FAILED
    assert list(Group.objects.values_list("name", flat=True)) == ["good"]


@pytest.mark.parametrize("task", [chores.return_function, chores.return_function_async])
def test_a_value_that_is_not_json_is_the_type_error_of_django(task: Any) -> None:
    result = task.using(max_attempts=1).enqueue()
    burst()

    result.refresh()

    [error] = result.errors
    assert error.exception_class is TypeError
    assert "Unsupported type: <class 'function'>" in error.traceback


def test_a_value_is_normalized_as_django_does() -> None:
    result = chores.return_tuple.enqueue()
    burst()

    result.refresh()

    assert result.return_value == {"pair": [1, "two"]}


def test_the_context_has_the_methods_of_job_context() -> None:
    result = chores.tell.enqueue("word")
    burst()

    result.refresh()

    assert result.return_value == ["word", 1, 3, result.id]
    assert result.job.progress == {"fraction": 0.5, "note": "half"}


def test_one_worker_runs_jobs_and_tasks() -> None:
    results = [chores.add.enqueue(n) for n in range(5)]
    others = [jobs.add.enqueue(x=n) for n in range(5)]
    by_name = Job.objects.enqueue(PATH, {"x": 7, "y": 7})
    burst()

    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [1, 2, 3, 4, 5]
    for job in (*others, by_name):
        job.refresh_from_db()
        assert job.status == "succeeded"
    assert by_name.result == 14


def test_tasks_run_under_the_testing_kit() -> None:
    result = chores.add.enqueue(1, y=4)
    with_context = chores.tell.enqueue("word")

    ran = run_jobs()

    result.refresh()
    with_context.refresh()
    assert len(ran) == 2
    assert (result.return_value, with_context.return_value[:2]) == (5, ["word", 1])


def test_errors_without_an_exception_have_an_importable_class() -> None:
    job = make_job(job_type=PATH, meta=META, lease_token=2, attempts=1)
    Attempt.objects.create(job_id=job.pk, lease_token=1, exception_class="WorkerLost")

    [error] = read(job).errors
    assert error.exception_class is WorkerLost


def test_the_worker_imports_the_module_of_an_unknown_task(
    worker_env: dict[str, str],
) -> None:
    """And imports nothing else that a row names."""
    plain = undiscovered_tasks.fetch.enqueue("milk")
    awaited = undiscovered_tasks.fetch_async.enqueue("milk")
    evil = [
        make_job(job_type=path, payload={"what": "x"}, meta=META)
        for path in ("tests.testapp.undiscovered_tasks.not_a_task", "os.system")
    ]
    with WorkerProcess(worker_env, "--concurrency", "1") as worker:
        wait_until(lambda: awaited.refresh() or awaited.is_finished)
        wait_until(lambda: plain.refresh() or plain.is_finished)
        wait_until(lambda: Job.objects.filter(unknown_since__isnull=False).count() == 2)
        log = worker.read_log()
    assert plain.return_value == "milk from undiscovered_tasks.py"
    assert awaited.return_value == "milk, awaited"
    assert "a row has made the worker run this" not in log
    for job in evil:
        job.refresh_from_db()
        assert job.status in ("pending", "scheduled", "running")
        assert job.unknown_since is not None


def test_only_rows_with_the_mark_of_django_tasks_may_name_a_module() -> None:
    marked = make_job(job_type=PATH, meta=META)
    plain = make_job(job_type=PATH, meta={"trace": "1"})

    assert is_task(get_database(), marked.pk)
    assert not is_task(get_database(), plain.pk)
