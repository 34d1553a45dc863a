"""BackendConformance: what django.tasks asks of a backend, as tests for any backend.

    class TestMyBackend(BackendConformance, TransactionTestCase):
        tasks_setting = {"BACKEND": "my.Backend"}
        promises = {"retry"}

        def run_tasks(self):
            call_command("my_worker", "--drain")

The contract comes from Django's documentation and the behaviour of its own backends.
What a backend says it does not support (`supports_…`) is not asked of it. `promises`
names what Django does not ask for and a backend offers all the same.
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

from ..backend.api import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    signals,
    task_backends,
)

# What a backend may promise beyond the contract.
PROMISES = {
    "crash": "a task whose worker is killed runs again, or is FAILED",
    "order": "of what waits, a higher priority runs first, then what came first",
    "retry": "a task that fails is tried again, if it says so",
    "transactions": "a task enqueued in a transaction that is rolled back never runs",
    "arguments": "what the database cannot hold is refused before the INSERT",
    "pickle": "tasks and results can be pickled (Django's own since 6.1)",
    "lost functions": "a result whose function is gone can be read",
    "timedelta": "run_after takes a timedelta",
}


class BackendConformance:
    """Tests of one backend; mix it into a TransactionTestCase."""

    # TASKS["default"]; QUEUES is added.
    tasks_setting: ClassVar[dict[str, Any]] = {}
    promises: ClassVar[set[str]] = set()
    # The longest a killed worker's task may stay RUNNING.
    crash_seconds: ClassVar[float] = 60.0
    # False for a backend that only takes notes, as Django's DummyBackend does.
    runs_tasks: ClassVar[bool] = True

    _override: ClassVar[Any]
    tasks: ClassVar[Any]

    def run_tasks(self) -> None:
        """Run everything that is due, and return when it has ended."""

    def start_worker(self) -> subprocess.Popen[Any]:
        """Start a worker process, for the promise `crash`."""
        raise NotImplementedError

    def retried(self, task: Any) -> Any:
        """Return the task with three attempts and no wait, for the promise `retry`."""
        raise NotImplementedError

    def forget_task(self, path: str) -> None:
        """Forget what this process knows of a task, as after a deploy without it."""

    @classmethod
    def setUpClass(cls) -> None:
        setting = {"QUEUES": ["default", "other"], **cls.tasks_setting}
        cls._override = override_settings(TASKS={"default": setting})
        cls._override.enable()
        from . import conformance_tasks

        cls.tasks = importlib.reload(conformance_tasks)
        super().setUpClass()  # type: ignore[misc]

    @classmethod
    def tearDownClass(cls) -> None:
        super().tearDownClass()  # type: ignore[misc]
        cls._override.disable()

    def setUp(self) -> None:
        super().setUp()  # type: ignore[misc]
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)  # type: ignore[attr-defined]
        self.folder = Path(folder.name)
        self.backend = task_backends["default"]

    def need(self, *names: str) -> None:
        """Leave the test out if the backend does not say that it can do this."""
        for name in names:
            if name == "run" and not self.runs_tasks:
                self.skipTest("does not run tasks")  # type: ignore[attr-defined]
            if name in PROMISES and name not in self.promises:
                self.skipTest(f"not promised: {name}")  # type: ignore[attr-defined]
            if name.startswith("supports_") and not getattr(self.backend, name):
                self.skipTest(f"{name} is False")  # type: ignore[attr-defined]

    def end(self, result: Any) -> Any:
        """Run what waits and return the result as it is then."""
        self.run_tasks()
        if self.backend.supports_get_result:
            result.refresh()
        return result

    @contextmanager
    def heard(self, signal: Any) -> Iterator[list[Any]]:
        found: list[Any] = []

        def hear(sender: Any, task_result: Any, **kwargs: Any) -> None:
            found.append((sender, task_result))

        signal.connect(hear)
        try:
            yield found
        finally:
            signal.disconnect(hear)

    # Enqueue.

    def test_enqueue_returns_a_result_that_says_what_was_asked(self) -> None:
        result = self.tasks.add.enqueue(1, y=2)
        assert isinstance(result.id, str)
        assert 0 < len(result.id) < 64
        assert result.task.func is self.tasks.add.func
        assert (result.args, result.kwargs) == ([1], {"y": 2})
        assert result.backend == "default"
        assert isinstance(result.enqueued_at, datetime)

    def test_a_task_that_waits_is_ready_and_has_no_value(self) -> None:
        if self.runs_tasks and not self.backend.supports_get_result:
            self.skipTest("runs at once")  # type: ignore[attr-defined]
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

    def test_what_the_database_cannot_hold_is_refused_and_aborts_nothing(self) -> None:
        self.need("arguments")
        for value in (float("nan"), float("inf"), "a\0b", "\ud800"):
            with transaction.atomic():
                with _raises(Exception):
                    self.tasks.echo.enqueue(value)
                # It would be refused if the transaction were aborted.
                self.tasks.noop.enqueue()

    def test_enqueue_sends_a_signal(self) -> None:
        with self.heard(signals.task_enqueued) as found:
            result = self.tasks.noop.enqueue()
        [(sender, told)] = found
        assert sender is type(self.backend)
        assert told.id == result.id

    def test_a_rolled_back_enqueue_never_happened(self) -> None:
        self.need("transactions", "run")
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

    def test_a_function_inside_another_is_no_task(self) -> None:
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
        self.need("supports_priority")
        for priority in (-100, 0, 100):
            assert self.tasks.noop.using(priority=priority).priority == priority
        for wrong in (-101, 101, 1.5):
            with _raises(InvalidTask):
                self.tasks.noop.using(priority=wrong)

    def test_a_naive_time_is_refused(self) -> None:
        self.need("supports_defer")
        with _raises(InvalidTask):
            self.tasks.noop.using(run_after=datetime(2030, 1, 1))

    def test_the_task_is_validated_again_at_enqueue(self) -> None:
        other = self.tasks.noop.using(queue_name="other")
        setting = {"QUEUES": ["default"], **self.tasks_setting}
        with override_settings(TASKS={"default": setting}), _raises(InvalidTask):
            other.enqueue()

    # Running.

    def test_a_task_runs_and_its_value_is_kept(self) -> None:
        self.need("run")
        result = self.end(self.tasks.add.enqueue(4, y=5))
        assert result.status == TaskResultStatus.SUCCESSFUL
        assert result.is_finished
        assert (result.return_value, result.errors) == (9, [])
        assert result.attempts == len(result.worker_ids) == 1
        assert result.enqueued_at <= result.started_at <= result.finished_at
        assert result.last_attempted_at == result.started_at

    def test_a_coroutine_function_is_a_task_too(self) -> None:
        self.need("run", "supports_async_task")
        assert self.end(self.tasks.add_async.enqueue(4)).return_value == 5

    def test_arguments_arrive_as_they_were_given(self) -> None:
        self.need("run")
        values: list[Any] = [1, 2.5, "ü", None, True, [1, [2]], {"a": {"b": []}}]
        result = self.end(self.tasks.echo.enqueue(*values, key=values))
        assert result.return_value == {"args": values, "kwargs": {"key": values}}

    def test_an_exception_is_a_failure_that_can_be_read(self) -> None:
        self.need("run")
        for task in (self.tasks.fail, self.tasks.fail_async):
            result = self.end(self._once(task).enqueue("on purpose"))
            assert result.status == TaskResultStatus.FAILED
            assert result.errors[-1].exception_class is ValueError
            assert "on purpose" in result.errors[-1].traceback
            with _raises(ValueError, "Task failed"):
                _ = result.return_value

    def test_sys_exit_is_a_failure_and_the_worker_goes_on(self) -> None:
        self.need("run")
        left = self._once(self.tasks.leave).enqueue()
        fine = self.tasks.add.enqueue(1)
        self.run_tasks()
        if self.backend.supports_get_result:
            left.refresh()
            fine.refresh()
        assert left.errors[-1].exception_class is SystemExit
        assert fine.return_value == 2

    def test_a_value_that_is_not_json_is_a_failure(self) -> None:
        self.need("run")
        result = self.end(self._once(self.tasks.return_object).enqueue())
        assert result.status == TaskResultStatus.FAILED
        assert result.errors

    def test_a_task_can_ask_for_its_context(self) -> None:
        self.need("run")
        result = self.end(self.tasks.tell_attempt.enqueue())
        expected = [1, 1, TaskResultStatus.RUNNING, result.id]
        assert result.return_value == expected
        if self.backend.supports_async_task:
            assert self.end(self.tasks.tell_attempt_async.enqueue()).return_value == 1

    def test_a_deferred_task_waits(self) -> None:
        self.need("run", "supports_defer")
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
        self.need("timedelta", "supports_defer")
        result = self.tasks.noop.using(run_after=timedelta(hours=1)).enqueue()
        self.run_tasks()
        result.refresh()
        assert result.status == TaskResultStatus.READY

    def test_the_worker_sends_signals(self) -> None:
        """In this process, if that is where it runs tasks."""
        self.need("run")
        with (
            self.heard(signals.task_started) as started,
            self.heard(signals.task_finished) as finished,
        ):
            result = self.end(self._once(self.tasks.fail).enqueue("x"))
        [(_, begun)] = started
        [(sender, ended)] = finished
        assert sender is type(self.backend)
        assert begun.id == ended.id == result.id
        assert ended.status == TaskResultStatus.FAILED

    def test_urgent_tasks_run_first(self) -> None:
        self.need("run", "order", "supports_priority")
        path = str(self.folder / "ledger")
        for priority in (0, 50, -50, 50):
            task = self.tasks.note.using(priority=priority)
            task.enqueue(path, f"{priority}")
        self.run_tasks()
        assert Path(path).read_text().split() == ["50", "50", "0", "-50"]

    def test_a_failing_task_is_tried_again(self) -> None:
        self.need("run", "retry", "supports_get_result")
        path = str(self.folder / "ledger")
        with self.heard(signals.task_finished) as finished:
            task = self.retried(self.tasks.fail_until)
            result = self.end(task.enqueue(path, 3))
        assert result.status == TaskResultStatus.SUCCESSFUL
        assert (result.return_value, result.attempts) == (3, 3)
        kinds = [error.exception_class for error in result.errors]
        assert kinds == [ConnectionError, ConnectionError]
        assert len(finished) == 1

    def test_a_task_whose_worker_is_killed_is_not_stuck(self) -> None:
        self.need("run", "crash", "supports_get_result")
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
        self.need("supports_get_result")
        result = self.tasks.add.enqueue(1, y=2)
        found = self.tasks.add.get_result(result.id)
        assert found == result or found.id == result.id
        assert (found.args, found.kwargs) == ([1], {"y": 2})
        assert found.task.func is self.tasks.add.func
        async_found = async_to_sync(self.tasks.add.aget_result)(result.id)
        assert async_found.id == result.id

    def test_the_result_of_another_task_is_a_mismatch(self) -> None:
        self.need("supports_get_result")
        result = self.tasks.noop.enqueue()
        with _raises(TaskResultMismatch):
            self.tasks.add.get_result(result.id)

    def test_an_id_that_nobody_has_does_not_exist(self) -> None:
        self.need("supports_get_result")
        for id in ("0192aaaa-0000-7000-8000-000000000000", "no id", "", "1" * 63):
            with _raises(TaskResultDoesNotExist):
                self.backend.get_result(id)

    def test_a_result_whose_function_is_gone_can_be_read(self) -> None:
        self.need("supports_get_result", "lost functions")
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
        self.need("pickle")
        task = pickle.loads(pickle.dumps(self.tasks.add))
        assert task == self.tasks.add
        result = self.tasks.add.enqueue(1)
        again = pickle.loads(pickle.dumps(result))
        assert (again.id, again.args) == (result.id, [1])

    def _once(self, task: Any) -> Any:
        """Return the task without retries, where a backend has them."""
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
