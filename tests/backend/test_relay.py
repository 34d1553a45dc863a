"""Django's own signals of a task, sent by our relay."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command

from django_jobqueue.backend.api import TaskResultStatus, signals
from django_jobqueue.exceptions import JobCancelled, JobDead, WorkerCrashed
from django_jobqueue.signals import job_died
from tests.testapp import chores

pytestmark = pytest.mark.django_db(transaction=True)
PATH = "tests.testapp.chores.fail_as_told"


def burst() -> None:
    call_command("runworker", burst=True, verbosity=0)


@contextmanager
def received(signal: Any) -> Iterator[list[tuple[Any, BaseException | None]]]:
    """Collect each result of a signal and the exception active in its receivers."""
    found: list[tuple[Any, BaseException | None]] = []

    def receive(task_result: Any, **kwargs: Any) -> None:
        found.append((task_result, sys.exc_info()[1]))

    signal.connect(receive)
    try:
        yield found
    finally:
        signal.disconnect(receive)


def send_died(id: str, **values: Any) -> None:
    """Send job_died as the worker does."""
    job_died.send(
        None, job_id=UUID(id), job_type=PATH, queue="default", attempt=1, **values
    )


def test_task_finished_is_sent_once_for_the_end_of_a_task() -> None:
    with (
        received(signals.task_started) as started,
        received(signals.task_finished) as finished,
    ):
        chores.fail_as_told.using(backoff=0).enqueue("value")
        burst()
    assert [result.status for result, _ in started] == [TaskResultStatus.RUNNING] * 2
    [(result, _)] = finished
    assert (result.status, len(result.errors)) == (TaskResultStatus.FAILED, 2)


def test_a_task_cancelled_while_it_waits_has_finished() -> None:
    with received(signals.task_finished) as finished:
        result = chores.add.enqueue(1)
        result.job.cancel()
    [(found, error)] = finished
    assert (found.id, found.status) == (result.id, TaskResultStatus.FAILED)
    assert isinstance(error, JobCancelled)


def test_task_finished_of_a_failure_has_an_active_exception() -> None:
    """Django's own log receiver reads sys.exc_info()."""
    with received(signals.task_finished) as finished:
        chores.fail_as_told.using(max_attempts=1).enqueue("value")
        burst()
    [(_, error)] = finished
    assert isinstance(error, ValueError)
    assert "as told" in str(error)
    frame, _ = list(walk_tb(error.__traceback__))[-1]
    assert frame.f_code.co_name == "fail_as_told"


def test_no_exception_is_active_when_a_task_has_succeeded() -> None:
    with received(signals.task_finished) as finished:
        chores.add.enqueue(1)
        burst()
    [(result, error)] = finished
    assert (result.status, error) == (TaskResultStatus.SUCCESSFUL, None)


def test_the_active_exception_is_the_handlers_own_and_stays_as_it_was() -> None:
    result = chores.fail_as_told.enqueue("value")
    try:
        raise ValueError("as told")
    except ValueError as caught:
        raised = caught
    before = raised.__traceback__

    with received(signals.task_finished) as finished:
        try:
            raise KeyError("unrelated")
        except KeyError:
            send_died(result.id, reason="exception", error="", exception=raised)
    [(_, error)] = finished
    assert error is raised
    assert (raised.__traceback__, raised.__context__) == (before, None)


@pytest.mark.parametrize(
    ("reason", "error", "kind", "text"),
    [
        ("crashed", "WorkerCrashed: killed", WorkerCrashed, "killed"),
        ("exception", "ValueError: as told", JobDead, "ValueError: as told"),
    ],
)
def test_an_end_without_an_exception_gets_one_named_for_its_reason(
    reason: str, error: str, kind: type[BaseException], text: str
) -> None:
    result = chores.fail_as_told.enqueue("value")

    with received(signals.task_finished) as finished:
        send_died(result.id, reason=reason, error=error, exception=None)
    [(_, active)] = finished
    assert (type(active), str(active)) == (kind, text)
