"""The django.tasks backend: a task is a job, in the same table, run by the same worker.

    TASKS = {"default": {"BACKEND": "django_jobqueue.backend.JobQueueBackend"}}

Imports no model at module level: backends are created while modules with tasks are
imported, which may be before the app registry is ready.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.checks import CheckMessage

from ..exceptions import InvalidOption
from ..options import check_queue_name
from ..registry import get_handler
from ..states import TASK_META
from .api import (
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    normalize_json,
    signals,
)
from .handler import TaskHandler, announce_task
from .results import JobTaskResult, make_result, read_alias
from .task import (
    NOW,
    JobTask,
    check_options,
    describe_differences,
    read_row_options,
)

__all__ = ["NOW", "JobQueueBackend", "JobTask", "JobTaskResult"]


class JobQueueBackend(BaseTaskBackend):  # type: ignore[misc]
    """Enqueues tasks as jobs. OPTIONS are defaults for the job options of its tasks."""

    task_class = JobTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask if this task cannot run; at import and at enqueue."""
        try:
            int(task.priority)
        except (TypeError, ValueError):
            raise InvalidTask(
                f"priority must be a whole number, not {task.priority!r}."
            ) from None
        super().validate_task(task)
        try:
            check_queue_name(task.queue_name)
        except InvalidOption as error:
            raise InvalidTask(str(error)) from error
        check_options(task)
        announce_task(task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> JobTaskResult:
        """Insert the job for one call, in the caller's transaction if there is one."""
        from ..lifecycle.enqueue import enqueue_job
        from ..storage.new_jobs import JobSpec

        self.validate_task(task)
        handler = self._find_handler(task)
        spec = JobSpec(
            handler.name,
            normalize_json(dict(kwargs)),
            queue=task.queue_name,
            priority=int(task.priority),
            run_at=task.run_after,
            delay=getattr(task, "delay", None),
            **self._choose_options(task, handler.task),
        )
        spec.args = normalize_json(list(args))
        job = enqueue_job(spec)
        result = make_result(job, task=task, alias=self.alias)
        # Robust: the job is inserted, whatever a receiver raises. Django logs it.
        signals.task_enqueued.send_robust(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> JobTaskResult:
        """Return the result with this id. Raises TaskResultDoesNotExist."""
        from ..options import get_options
        from ..storage.lookups import find_job

        try:
            id = UUID(str(result_id))
        except ValueError:
            raise TaskResultDoesNotExist(result_id) from None
        job = find_job(get_options().database, id)
        if job is None or read_alias(job) != self.alias:
            raise TaskResultDoesNotExist(result_id)
        return make_result(job)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """Return the messages of `manage.py check` for this backend in TASKS."""
        from .checks import check_backend

        return check_backend(self)

    def _find_handler(self, task: Any) -> TaskHandler:
        handler = get_handler(task.module_path)
        if not isinstance(handler, TaskHandler):
            raise InvalidTask(
                f"{task.module_path} is the name of a task and of a handler of @job. "
                f"Give the handler another name: @job('another.name')."
            )
        if names := describe_differences(task, handler.task):
            raise InvalidTask(
                f"{', '.join(names)} of {task.module_path} cannot be changed for one "
                f"call, because a row has no column for it. Set it where the task is "
                f"defined: {task.name} = {task.name}.using({names[0]}=…)."
            )
        return handler

    def _choose_options(self, task: Any, declared: Any) -> dict[str, Any]:
        """Return the options for the row: those that differ from the declared task."""
        given = read_row_options(task)
        own = read_row_options(declared)
        chosen = {name: each for name, each in given.items() if own.get(name) != each}
        for name, value in self.options.items():
            if name not in given:
                chosen[name] = value
        for name in ("unique_key", "expires_at", "tags", "meta"):
            # The worker reads the other options from the task, these from the row only.
            if name in given:
                chosen[name] = given[name]
        chosen["meta"] = {
            **(chosen.get("meta") or {}),
            TASK_META: {"backend": self.alias},
        }
        return chosen
