"""BackendConformance: the contract of django.tasks as tests for any backend.

    class TestMyBackend(BackendConformance, TransactionTestCase):
        tasks_setting = {"BACKEND": "my.Backend"}
        promises = {"retry"}

        def run_tasks(self):
            call_command("my_worker", "--drain")

The contract comes from Django's documentation and the behaviour of its own backends.
Tests of features that a backend does not support (`supports_…` is False) are skipped.
`promises` lists what a backend offers beyond the contract.
"""

from __future__ import annotations

import importlib
import pickle
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar

from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from django_jobqueue.backend.api import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    signals,
    task_backends,
)

# What a backend can promise beyond the contract.
PROMISES = {
    "crash": "a task whose worker is killed runs again, or is FAILED",
    "order": "tasks with a higher priority run first, then in the order of enqueue",
    "retry": "a task that fails is tried again, if it says so",
    "transactions": "a task enqueued in a transaction that is rolled back never runs",
    "arguments": "values the database cannot store are refused before the INSERT",
    "pickle": "tasks and results can be pickled (Django's own since 6.1)",
    "lost functions": "a result whose function no longer exists can be read",
    "timedelta": "run_after takes a timedelta",
}


class BackendConformance:
    """Tests of one backend; mix it into a TransactionTestCase."""

    # TASKS["default"]; QUEUES is added.
    tasks_setting: ClassVar[dict[str, Any]] = {}
    promises: ClassVar[set[str]] = set()
    # How long the task of a killed worker may stay RUNNING.
    crash_seconds: ClassVar[float] = 60.0
    # False for a backend that only records tasks, like Django's DummyBackend.
    runs_tasks: ClassVar[bool] = True

    _override: ClassVar[Any]
    tasks: ClassVar[Any]

    def run_tasks(self) -> None:
        """Run all due tasks, and return when they have ended."""

    def start_worker(self) -> subprocess.Popen[Any]:
        """Start a worker process, for the promise `crash`."""
        raise NotImplementedError

    def retried(self, task: Any) -> Any:
        """Return the task with three attempts and no delay, for the promise `retry`."""
        raise NotImplementedError

    def forget_task(self, path: str) -> None:
        """Remove a task from this process, as if its code had been deleted."""

    @classmethod
    def setUpClass(cls) -> None:
        setting = {"QUEUES": ["default", "other"], **cls.tasks_setting}
        cls._override = override_settings(TASKS={"default": setting})
        cls._override.enable()
        from tests.testapp import conformance_tasks

        cls.tasks = importlib.reload(conformance_tasks)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls) -> None:
        super().tearDownClass()
        cls._override.disable()

    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.backend = task_backends["default"]

    def require(self, *names: str) -> None:
        """Skip the test unless the backend supports or promises these."""
        for name in names:
            if name == "run" and not self.runs_tasks:
                self.skipTest("does not run tasks")
            if name in PROMISES and name not in self.promises:
                self.skipTest(f"not promised: {name}")
            if name.startswith("supports_") and not getattr(self.backend, name):
                self.skipTest(f"{name} is False")

    def end(self, result: Any) -> Any:
        """Run all due tasks and return the refreshed result."""
        self.run_tasks()
        if self.backend.supports_get_result:
            result.refresh()
        return result

    @contextmanager
    def received(self, signal: Any) -> Iterator[list[Any]]:
        found: list[Any] = []

        def receive(sender: Any, task_result: Any, **kwargs: Any) -> None:
            found.append((sender, task_result))

        signal.connect(receive)
        try:
            yield found
        finally:
            signal.disconnect(receive)

    # Enqueue.

    def test_enqueue_returns_a_result_with_task_and_arguments(self) -> None:
        result = self.tasks.add.enqueue(1, y=2)
        assert isinstance(result.id, str)
        assert 0 < len(result.id) < 64
        assert result.task.func is self.tasks.add.func
        assert (result.args, result.kwargs) == ([1], {"y": 2})
        assert result.backend == "default"
        assert isinstance(result.enqueued_at, datetime)

    def test_a_waiting_task_is_ready_and_has_no_return_value(self) -> None:
        if self.runs_tasks and not self.backend.supports_get_result:
            self.skipTest("runs at once")
        result = self.tasks.noop.enqueue()
        assert result.status == TaskResultStatus.READY
        assert not result.is_finished
        assert (result.attempts, result.errors, result.worker_ids) == (0, [], [])
        with _raises(ValueError, "has not finished yet"):
            _ = result.return_value

    def test_enqueue_from_async_code(self) -> None:
        result = async_to_sync(self.tasks.add.aenqueue)(3)
        assert result.args == [3]

    def test_arguments_that_are_not_json_are_a_type_error(self) -> None:
        for value in (object(), {1, 2}, timezone.now()):
            with _raises(TypeError):
                self.tasks.echo.enqueue(value)

    def test_tuples_become_lists(self) -> None:
        assert self.tasks.echo.enqueue((1, 2)).args == [[1, 2]]

    def test_values_the_database_cannot_store_do_not_abort_the_transaction(
        self,
    ) -> None:
        self.require("arguments")
        for value in (float("nan"), float("inf"), "a\0b", "\ud800"):
            with transaction.atomic():
                with _raises(Exception):
                    self.tasks.echo.enqueue(value)
                # Fails if the transaction was aborted.
                self.tasks.noop.enqueue()

    def test_enqueue_sends_a_signal(self) -> None:
        with self.received(signals.task_enqueued) as found:
            result = self.tasks.noop.enqueue()
        [(sender, sent)] = found
        assert sender is type(self.backend)
        assert sent.id == result.id

    def test_a_rolled_back_task_never_runs(self) -> None:
        self.require("transactions", "run")
        path = self.folder / "ledger"
        try:
            with transaction.atomic():
                self.tasks.note.enqueue(str(path), "rolled back")
                raise KeyError
        except KeyError:
            pass
        with transaction.atomic():
            self.tasks.note.enqueue(str(path), "committed")
        self.run_tasks()
        assert path.read_text().split("\n") == ["committed", ""]

    # Validation.

    def test_a_nested_function_is_refused(self) -> None:
        def inner() -> None: ...

        with _raises(InvalidTask):
            type(self.tasks.noop)(
                func=inner,
                priority=0,
                backend="default",
                queue_name="default",
                run_after=None,
            )

    def test_an_unknown_queue_is_refused(self) -> None:
        self.tasks.noop.using(queue_name="other")
        with _raises(InvalidTask, "nowhere"):
            self.tasks.noop.using(queue_name="nowhere")

    def test_priorities_have_a_range(self) -> None:
        self.require("supports_priority")
        for priority in (-100, 0, 100):
            assert self.tasks.noop.using(priority=priority).priority == priority
        for wrong in (-101, 101, 1.5):
            with _raises(InvalidTask):
                self.tasks.noop.using(priority=wrong)

    def test_a_naive_run_after_is_refused(self) -> None:
        self.require("supports_defer")
        with _raises(InvalidTask):
            self.tasks.noop.using(run_after=datetime(2030, 1, 1))

    def test_the_task_is_validated_again_at_enqueue(self) -> None:
        other = self.tasks.noop.using(queue_name="other")
        setting = {"QUEUES": ["default"], **self.tasks_setting}
        with override_settings(TASKS={"default": setting}), _raises(InvalidTask):
            other.enqueue()

    # Running.

    def test_a_task_runs_and_its_return_value_is_kept(self) -> None:
        self.require("run")
        result = self.end(self.tasks.add.enqueue(4, y=5))
        assert result.status == TaskResultStatus.SUCCESSFUL
        assert result.is_finished
        assert (result.return_value, result.errors) == (9, [])
        assert result.attempts == len(result.worker_ids) == 1
        assert result.enqueued_at <= result.started_at <= result.finished_at
        assert result.last_attempted_at == result.started_at

    def test_a_coroutine_function_is_a_task_too(self) -> None:
        self.require("run", "supports_async_task")
        assert self.end(self.tasks.add_async.enqueue(4)).return_value == 5

    def test_arguments_reach_the_function_unchanged(self) -> None:
        self.require("run")
        values: list[Any] = [1, 2.5, "ü", None, True, [1, [2]], {"a": {"b": []}}]
        result = self.end(self.tasks.echo.enqueue(*values, key=values))
        assert result.return_value == {"args": values, "kwargs": {"key": values}}

    def test_an_exception_is_a_failure_with_class_and_traceback(self) -> None:
        self.require("run")
        for task in (self.tasks.fail, self.tasks.fail_async):
            result = self.end(self._once(task).enqueue("on purpose"))
            assert result.status == TaskResultStatus.FAILED
            assert result.errors[-1].exception_class is ValueError
            assert "on purpose" in result.errors[-1].traceback
            with _raises(ValueError, "Task failed"):
                _ = result.return_value

    def test_sys_exit_is_a_failure_and_the_worker_continues(self) -> None:
        self.require("run")
        left = self._once(self.tasks.leave).enqueue()
        fine = self.tasks.add.enqueue(1)
        self.run_tasks()
        if self.backend.supports_get_result:
            left.refresh()
            fine.refresh()
        assert left.errors[-1].exception_class is SystemExit
        assert fine.return_value == 2

    def test_a_return_value_that_is_not_json_is_a_failure(self) -> None:
        self.require("run")
        result = self.end(self._once(self.tasks.return_object).enqueue())
        assert result.status == TaskResultStatus.FAILED
        assert result.errors

    def test_a_task_can_take_its_context(self) -> None:
        self.require("run")
        result = self.end(self.tasks.return_attempt.enqueue())
        expected = [1, 1, TaskResultStatus.RUNNING, result.id]
        assert result.return_value == expected
        if self.backend.supports_async_task:
            assert self.end(self.tasks.return_attempt_async.enqueue()).return_value == 1

    def test_a_deferred_task_waits(self) -> None:
        self.require("run", "supports_defer")
        later = timezone.now() + timedelta(hours=1)
        past = timezone.now() - timedelta(hours=1)
        waiting = self.tasks.noop.using(run_after=later).enqueue()
        due = self.tasks.noop.using(run_after=past).enqueue()
        self.run_tasks()
        waiting.refresh()
        due.refresh()
        assert waiting.status == TaskResultStatus.READY
        assert due.status == TaskResultStatus.SUCCESSFUL

    def test_run_after_takes_a_timedelta(self) -> None:
        self.require("timedelta", "supports_defer")
        result = self.tasks.noop.using(run_after=timedelta(hours=1)).enqueue()
        self.run_tasks()
        result.refresh()
        assert result.status == TaskResultStatus.READY

    def test_the_worker_sends_signals(self) -> None:
        """Assumes that run_tasks() runs tasks in this process."""
        self.require("run")
        with (
            self.received(signals.task_started) as started,
            self.received(signals.task_finished) as finished,
        ):
            result = self.end(self._once(self.tasks.fail).enqueue("x"))
        [(_, begun)] = started
        [(sender, ended)] = finished
        assert sender is type(self.backend)
        assert begun.id == ended.id == result.id
        assert ended.status == TaskResultStatus.FAILED

    def test_tasks_with_a_higher_priority_run_first(self) -> None:
        self.require("run", "order", "supports_priority")
        path = str(self.folder / "ledger")
        for priority in (0, 50, -50, 50):
            task = self.tasks.note.using(priority=priority)
            task.enqueue(path, f"{priority}")
        self.run_tasks()
        assert Path(path).read_text().split() == ["50", "50", "0", "-50"]

    def test_a_failing_task_is_tried_again(self) -> None:
        self.require("run", "retry", "supports_get_result")
        path = str(self.folder / "ledger")
        with self.received(signals.task_finished) as finished:
            task = self.retried(self.tasks.fail_until)
            result = self.end(task.enqueue(path, 3))
        assert result.status == TaskResultStatus.SUCCESSFUL
        assert (result.return_value, result.attempts) == (3, 3)
        kinds = [error.exception_class for error in result.errors]
        assert kinds == [ConnectionError, ConnectionError]
        assert len(finished) == 1

    def test_a_task_whose_worker_is_killed_is_not_stuck(self) -> None:
        self.require("run", "crash", "supports_get_result")
        path = self.folder / "ledger"
        result = self.tasks.linger.enqueue(str(path), self.crash_seconds)
        with _killed(self.start_worker()):
            _wait(path.exists, self.crash_seconds)

        def is_over() -> bool:
            result.refresh()
            return bool(result.is_finished)

        with _killed(self.start_worker()):
            _wait(is_over, self.crash_seconds)
        assert result.return_value == "done"

    # Results.

    def test_a_result_is_found_by_its_id(self) -> None:
        self.require("supports_get_result")
        result = self.tasks.add.enqueue(1, y=2)
        found = self.tasks.add.get_result(result.id)
        assert found == result or found.id == result.id
        assert (found.args, found.kwargs) == ([1], {"y": 2})
        assert found.task.func is self.tasks.add.func
        async_found = async_to_sync(self.tasks.add.aget_result)(result.id)
        assert async_found.id == result.id

    def test_the_result_of_another_task_is_a_mismatch(self) -> None:
        self.require("supports_get_result")
        result = self.tasks.noop.enqueue()
        with _raises(TaskResultMismatch):
            self.tasks.add.get_result(result.id)

    def test_an_unknown_id_does_not_exist(self) -> None:
        self.require("supports_get_result")
        for id in ("0192aaaa-0000-7000-8000-000000000000", "no id", "", "1" * 63):
            with _raises(TaskResultDoesNotExist):
                self.backend.get_result(id)

    def test_a_result_whose_function_no_longer_exists_can_be_read(self) -> None:
        self.require("supports_get_result", "lost functions")
        code = self.tasks.add.func.__code__
        function = FunctionType(code, vars(self.tasks), "gone_soon", (1,))
        function.__qualname__ = "gone_soon"
        self.tasks.gone_soon = self.tasks.task(function)
        result = self.tasks.gone_soon.enqueue(7)
        del self.tasks.gone_soon
        self.forget_task(f"{self.tasks.__name__}.gone_soon")
        found = self.backend.get_result(result.id)
        assert found.task.module_path == f"{self.tasks.__name__}.gone_soon"
        assert found.args == [7]

    def test_tasks_and_results_can_be_pickled(self) -> None:
        self.require("pickle")
        task = pickle.loads(pickle.dumps(self.tasks.add))
        assert task == self.tasks.add
        result = self.tasks.add.enqueue(1)
        again = pickle.loads(pickle.dumps(result))
        assert (again.id, again.args) == (result.id, [1])

    def _once(self, task: Any) -> Any:
        """Return the task without retries, if the backend has retries."""
        return task.using(max_attempts=1) if hasattr(task, "max_attempts") else task


@contextmanager
def _killed(process: subprocess.Popen[Any]) -> Iterator[None]:
    """Kill a process at the end of the block."""
    with process:
        try:
            yield
        finally:
            process.kill()


@contextmanager
def _raises(kind: type[BaseException], text: str = "") -> Iterator[None]:
    try:
        yield
    except kind as error:
        if text in str(error):
            return
        raise AssertionError(f"{text!r} is not in {error!r}") from error
    raise AssertionError(f"{kind.__name__} was not raised")


def _wait(is_true: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} seconds")
        time.sleep(0.1)
