"""Tasks of django.tasks as jobs: what is declared, enqueued and refused."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from django_jobqueue import Job, registry
from django_jobqueue.backend import NOW, JobTask
from django_jobqueue.backend.api import InvalidTask, signals, task, task_backends
from django_jobqueue.backend.handler import TaskHandler, import_task
from django_jobqueue.exceptions import InvalidPayload, JobQueueError
from tests.testapp import chores, jobs

OURS = "django_jobqueue.backend.JobQueueBackend"

pytestmark = pytest.mark.django_db


def test_a_task_is_a_job_like_any_other() -> None:
    result = chores.add.using(queue_name="sums", priority=7).enqueue(1, y=2)

    job = Job.objects.get(pk=result.id)
    assert (job.job_type, job.queue) == ("tests.testapp.chores.add", "sums")
    assert (job.args, job.payload, job.priority) == ([1], {"y": 2}, 7)
    assert (job.max_attempts, job.timeout, job.backoff) == (None, None, None)
    assert result.job == job


def test_tasks_and_handlers_are_in_one_registry() -> None:
    found = registry.all_handlers()

    assert isinstance(found["tests.testapp.chores.add"], TaskHandler)
    assert "testapp.add" in found


def test_the_last_definition_in_the_module_counts() -> None:
    handler = registry.get_handler("tests.testapp.chores.fail_as_told")

    assert handler.max_attempts == 2
    assert handler.discard_on == (LookupError,)
    assert registry.get_handler("tests.testapp.chores.make_group").atomic


def test_a_task_may_have_another_name_than_its_function() -> None:
    result = chores.double.enqueue(4)

    assert Job.objects.get(pk=result.id).job_type == "tests.testapp.chores.renamed"


def test_each_row_option_can_be_set_for_one_call() -> None:
    later = timezone.now() + timedelta(days=2)
    given = chores.add.using(
        max_attempts=9,
        timeout=30,
        backoff=[1, 2],
        unique_key="only-one",
        expires_at=later,
        tags=["a"],
        meta={"who": "me"},
    )

    first, second = given.enqueue(1), given.enqueue(1)

    job = Job.objects.get()
    assert first.id == second.id == str(job.pk)
    assert (job.max_attempts, job.timeout) == (9, timedelta(seconds=30))
    assert (job.unique_key, job.expires_at, job.tags) == ("only-one", later, ["a"])
    assert job.meta == {"who": "me", "django.tasks": {"backend": "default"}}


def test_the_decorator_takes_job_options() -> None:
    if django.VERSION[:2] == (6, 0):
        # Only using() takes them in 6.0.
        with pytest.raises(TypeError, match="max_attempts"):
            task(max_attempts=5)(chores.renamed)
        return
    made = task(max_attempts=5, timeout=3)(chores.renamed)
    assert (type(made), made.max_attempts, made.timeout) == (JobTask, 5, 3)


def test_an_unknown_option_suggests_the_closest_name() -> None:
    with pytest.raises(TypeError, match="Did you mean 'max_attempts'"):
        chores.add.using(max_attempt=3)
    with pytest.raises(TypeError, match="Write run_after=…, which takes an aware"):
        chores.add.using(countdown=3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_attempts": 0}, "max_attempts is a whole number from 1"),
        ({"timeout": -1}, "timeout is a timedelta or seconds"),
        ({"backoff": "soon"}, "backoff"),
        ({"unique_key": ""}, "unique_key is a text"),
        ({"run_after": timedelta(days=-1)}, "delay is a timedelta or seconds"),
        ({"priority": "x"}, "priority must be a whole number, not 'x'"),
        ({"priority": 2.5}, "priority must be a whole number"),
        ({"queue_name": "no spaces"}, "A queue name has 1 to 64 letters"),
    ],
)
def test_an_invalid_option_is_refused_by_using(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidTask, match=text):
        chores.add.using(**options)


@pytest.mark.parametrize(("given", "stored"), [(True, 1), (3.0, 3), (-100, -100)])
def test_a_priority_is_stored_as_a_whole_number(given: Any, stored: int) -> None:
    result = chores.add.using(priority=given).enqueue(1)

    assert Job.objects.get(pk=result.id).priority == stored


def test_code_options_cannot_be_changed_for_one_call() -> None:
    with pytest.raises(
        InvalidTask, match=r"atomic of .* cannot be changed for one call"
    ):
        chores.add.using(atomic=True).enqueue(1)
    with pytest.raises(InvalidTask, match="retry_on"):
        chores.add.using(retry_on=ValueError).enqueue(1)
    assert not Job.objects.exists()


def test_a_timedelta_as_run_after_counts_from_the_enqueue() -> None:
    # Not from using(), which may run at import.
    later = chores.add.using(run_after=timedelta(hours=1))

    result = later.enqueue(1)

    job = Job.objects.get(pk=result.id)
    assert job.status == "scheduled"
    assert timedelta(minutes=59) < job.run_at - timezone.now() <= timedelta(hours=1)
    found = chores.add.get_result(result.id)
    assert found.task.run_after == job.run_at


def test_run_after_now_clears_an_earlier_value() -> None:
    later = chores.add.using(run_after=timezone.now() + timedelta(days=1))

    assert later.using(run_after=None).run_after == later.run_after
    for each in (later, later.using(run_after=timedelta(hours=1))):
        result = each.using(run_after=NOW).enqueue(1)
        assert Job.objects.get(pk=result.id).status == "pending"


def test_arguments_are_returned_as_they_are_stored() -> None:
    result = chores.add.enqueue(b"bytes", y=(1, 2))

    assert (result.args, result.kwargs) == (["bytes"], {"y": [1, 2]})
    found = chores.add.get_result(result.id)
    assert (found.args, found.kwargs) == (["bytes"], {"y": [1, 2]})


@pytest.mark.parametrize("value", [float("nan"), "a\0b", "\ud800", {1: 2}])
def test_arguments_the_database_cannot_store_are_refused(value: Any) -> None:
    with pytest.raises(InvalidPayload, match="args"):
        chores.add.enqueue(value)
    with pytest.raises(InvalidPayload, match="payload"):
        chores.add.enqueue(1, y=value)
    assert not Job.objects.exists()


def test_arguments_that_do_not_fit_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'x'") as caught:
        chores.add.enqueue()
    assert isinstance(caught.value, JobQueueError)
    with pytest.raises(TypeError, match="too many positional arguments"):
        chores.add.enqueue(1, 2, 3)
    chores.positional.enqueue(1, 2, 3)


def test_async_enqueue_is_in_the_callers_transaction() -> None:
    with transaction.atomic():
        result = async_to_sync(chores.add.aenqueue)(1)
        assert Job.objects.filter(pk=result.id).exists()
        transaction.set_rollback(True)
    assert not Job.objects.exists()


def test_a_failing_receiver_does_not_undo_the_enqueue() -> None:
    def fail(**kwargs: Any) -> None:
        raise RuntimeError("not my day")

    signals.task_enqueued.connect(fail)
    try:
        result = chores.add.enqueue(1)
    finally:
        signals.task_enqueued.disconnect(fail)
    assert Job.objects.filter(pk=result.id).exists()


def test_options_of_the_backend_are_defaults() -> None:
    setting = {"BACKEND": OURS, "QUEUES": [], "OPTIONS": {"max_attempts": 7}}
    with override_settings(TASKS={"default": setting}):
        plain = chores.add.enqueue(1)
        own = chores.fail_as_told.enqueue("value")

    assert Job.objects.get(pk=plain.id).max_attempts == 7
    # The worker reads it from the task.
    assert Job.objects.get(pk=own.id).max_attempts is None


def test_two_backends_do_not_see_each_others_results() -> None:
    both = {alias: {"BACKEND": OURS, "QUEUES": []} for alias in ("default", "other")}
    with override_settings(TASKS=both):
        result = chores.add.using(backend="other").enqueue(1)
        assert task_backends["other"].get_result(result.id).backend == "other"
        with pytest.raises(Exception, match=result.id):
            task_backends["default"].get_result(result.id)


def test_a_job_that_is_not_a_task_has_no_result() -> None:
    job = jobs.add.enqueue(x=1)

    with pytest.raises(Exception, match=str(job.pk)):
        task_backends["default"].get_result(str(job.pk))


def test_a_task_with_the_name_of_a_handler_is_refused() -> None:
    name = "tests.testapp.chores.add"
    known = registry.get_handler(name)
    registry._registry[name] = registry.get_handler("testapp.add")
    try:
        with pytest.raises(InvalidTask, match="the name of a task and of a handler"):
            chores.add.enqueue(1)
    finally:
        registry._registry[name] = known


@pytest.mark.parametrize(
    "path",
    [
        "os.system",
        "tests.testapp.undiscovered_tasks.not_a_task",
        "tests.testapp.undiscovered_tasks.nowhere",
        "tests.testapp.nowhere.fetch",
        "tests.processes.WorkerProcess",
        "nonsense",
    ],
)
def test_only_tasks_of_installed_apps_are_imported(path: str) -> None:
    assert import_task(path) is None


def test_the_backend_can_be_imported_before_the_apps_are_ready() -> None:
    """Modules with tasks are imported while the app registry is being filled."""
    code = (
        "from django.conf import settings\n"
        "settings.configure(TASKS={'default': {'BACKEND': %r}})\n"
        "from django_jobqueue.backend.api import task\n"
        "import tests.backend.early as early\n"
        "print(type(task(early.early)).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code % OURS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("JobTask\n", "")


@pytest.mark.parametrize("name", ["ImmediateBackend", "DummyBackend"])
def test_the_backends_for_tests_accept_job_options(name: str) -> None:
    setting = {"BACKEND": f"django_jobqueue.testing.backends.{name}", "QUEUES": []}
    with override_settings(TASKS={"default": setting}):
        made = task(chores.add.func).using(max_attempts=5)
        result = made.enqueue(4)
    assert (made.max_attempts, result.args) == (5, [4])
    assert not Job.objects.exists()


def test_the_backends_for_tests_accept_options_of_the_decorator() -> None:
    backend = "django_jobqueue.testing.backends.ImmediateBackend"
    with override_settings(TASKS={"default": {"BACKEND": backend}}):
        made = task_backends["default"].task_class(
            func=chores.renamed,
            priority=0,
            backend="default",
            queue_name="default",
            run_after=None,
            max_attempts=5,
        )
        assert made.enqueue(4).return_value == 8


def check(setting: dict[str, Any]) -> list[tuple[str, str, str]]:
    with override_settings(TASKS={"default": {"BACKEND": OURS, **setting}}):
        found = task_backends["default"].check()
    return [(each.id, each.msg, each.hint) for each in found]


def test_check_accepts_valid_settings() -> None:
    assert check({}) == []
    assert check({"OPTIONS": {"max_attempts": 3, "tags": ["x"]}, "QUEUES": []}) == []


@pytest.mark.parametrize(
    ("setting", "id", "text"),
    [
        ({"OPTIONS": {"max_atempts": 3}}, "E021", "Did you mean 'max_attempts'?"),
        ({"OPTIONS": {"unique_key": "a"}}, "E021", "has no option 'unique_key'"),
        ({"OPTIONS": {"max_attempts": "x"}}, "E021", "a whole number from 1 to 32000"),
        ({"QUEUES": ["a b"]}, "E022", "A queue name has 1 to 64 letters"),
    ],
)
def test_check_reports_invalid_settings(
    setting: dict[str, Any], id: str, text: str
) -> None:
    [(found, message, hint)] = check(setting)

    assert found == f"jobqueue.{id}"
    assert text in f"{message} {hint}"


def test_check_reports_that_the_app_is_not_installed() -> None:
    with override_settings(INSTALLED_APPS=[]):
        [(found, message, hint)] = check({})
    assert found == "jobqueue.E020"
    assert "INSTALLED_APPS lacks its app" in message
    assert "'django_jobqueue'" in hint


@pytest.mark.django_db(databases=["default", "business"])
def test_manage_py_check_runs_the_checks_of_the_backend() -> None:
    setting = {"BACKEND": OURS, "OPTIONS": {"nonsense": 1}}
    if django.VERSION < (6,):
        # The backport registers its check with its app.
        assert check({"OPTIONS": {"nonsense": 1}})
        return
    with (
        override_settings(TASKS={"default": setting}),
        pytest.raises(Exception, match=r"jobqueue\.E021"),
    ):
        call_command("check")
