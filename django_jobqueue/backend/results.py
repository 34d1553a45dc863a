"""Results: a job as a TaskResult of django.tasks.

A result is built from the row alone: the function of the task may no longer exist.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, cast

from .. import exceptions
from ..exceptions import JobQueueError
from ..registry import find_handler
from ..states import TASK_META
from .api import TaskError, TaskResult, TaskResultStatus, task_backends
from .task import JobTask

if TYPE_CHECKING:
    from ..models import Attempt, DeadJob, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTaskResult(TaskResult):  # type: ignore[misc]
    """A TaskResult with its job: a Job, or a DeadJob, which has a reason."""

    job: Any = None

    def refresh(self) -> None:
        """Read the job again."""
        self._copy_from(task_backends[self.backend].get_result(self.id))

    async def arefresh(self) -> None:
        """See refresh()."""
        self._copy_from(await task_backends[self.backend].aget_result(self.id))

    def _copy_from(self, fresh: JobTaskResult) -> None:
        for field in fields(self):
            if field.name != "task":
                object.__setattr__(self, field.name, getattr(fresh, field.name))


def make_result(
    job: Job | DeadJob, *, task: Any = None, alias: str | None = None
) -> JobTaskResult:
    """Return the result of a job. Reads its attempts if it was claimed before."""
    task = find_task_of(job) if task is None else task
    attempts = _read_attempts(job)
    result = JobTaskResult(
        task=task,
        id=str(job.pk),
        status=find_status(job),
        enqueued_at=job.created_at,
        started_at=attempts[0].started_at if attempts else job.started_at,
        last_attempted_at=job.started_at or job.claimed_at,
        finished_at=getattr(job, "finished_at", None) or getattr(job, "died_at", None),
        args=job.args,
        kwargs=job.payload,
        backend=alias or read_alias(job) or task.backend,
        errors=_make_errors(job, attempts),
        worker_ids=_list_workers(job, attempts),
        job=job,
    )
    object.__setattr__(result, "_return_value", getattr(job, "result", None))
    return result


def find_status(job: Job | DeadJob) -> Any:
    """Return the status as one of the four of django.tasks."""
    from ..models import DeadJob

    if isinstance(job, DeadJob):
        return TaskResultStatus.FAILED
    return {
        "running": TaskResultStatus.RUNNING,
        "succeeded": TaskResultStatus.SUCCESSFUL,
        "cancelled": TaskResultStatus.FAILED,
    }.get(job.status, TaskResultStatus.READY)


def read_alias(job: Job | DeadJob) -> str | None:
    """Return the alias of the backend that enqueued a job; None: not a task."""
    found = job.meta.get(TASK_META) if isinstance(job.meta, dict) else None
    alias = found.get("backend") if isinstance(found, dict) else None
    return alias if isinstance(alias, str) else None


def find_task_of(job: Job | DeadJob) -> Any:
    """Return the task as it was when this job was enqueued.

    If its function no longer exists, the task has a function that raises ImportError.
    """
    declared = getattr(find_handler(job.job_type), "task", None)
    changes = {
        "priority": job.priority,
        "queue_name": job.queue,
        "run_after": job.run_at if job.run_at > job.created_at else None,
        "backend": read_alias(job) or getattr(declared, "backend", "default"),
    }
    if declared is None:
        changes["func"] = _make_missing_function(job.job_type)
    return copy_task(declared, changes)


def copy_task(task: Any, changes: dict[str, Any]) -> Any:
    """Copy a task without validation: settings may have changed since the enqueue."""
    cls = JobTask if task is None else type(task)
    copy = object.__new__(cls)
    for field in fields(cls):
        default = getattr(task, field.name, None if task else field.default)
        object.__setattr__(copy, field.name, changes.get(field.name, default))
    return copy


def _make_missing_function(path: str) -> Callable[..., Any]:
    module, _, name = path.rpartition(".")

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise ImportError(f"The function {path!r} of this task does not exist.")

    missing.__module__, missing.__name__, missing.__qualname__ = module, name, name
    return missing


def _read_attempts(job: Job | DeadJob) -> list[Attempt]:
    from ..models import Attempt

    if not job.lease_token:
        return []
    alias = job._state.db or "default"
    rows = Attempt.objects.using(alias).filter(job_id=job.pk)
    return list(rows.order_by("lease_token"))


def _list_workers(job: Job | DeadJob, attempts: list[Attempt]) -> list[str]:
    """Return one worker id for each attempt that counts, the running one included."""
    last = {
        attempt.number: str(attempt.worker_id)
        for attempt in attempts
        if attempt.worker_id is not None
    }
    current = getattr(job, "worker_id", None) or job.finished_by
    if current is not None and job.attempts:
        last[job.attempts] = str(current)
    return [last[number] for number in sorted(last) if number <= job.attempts]


def _make_errors(job: Job | DeadJob, attempts: list[Attempt]) -> list[Any]:
    errors = [
        TaskError(
            exception_class_path=_find_path(attempt.exception_class),
            traceback=attempt.traceback or attempt.message,
        )
        for attempt in attempts
        if attempt.exception_class
    ]
    if getattr(job, "status", None) == "cancelled":
        # django.tasks has no status for a cancelled task, so its error says so.
        path = "django_jobqueue.exceptions.JobCancelled"
        errors.append(TaskError(exception_class_path=path, traceback=job.error))
    elif not errors and find_status(job) == TaskResultStatus.FAILED:
        path = _find_path(JobQueueError.__name__)
        errors.append(TaskError(exception_class_path=path, traceback=job.error))
    return errors


def _find_path(name: str) -> str:
    """Return the import path of a stored class name; builtins have no module there."""
    if "." in name:
        return name
    module = exceptions if hasattr(exceptions, name) else builtins
    return f"{module.__name__}.{name}"


def read_result(job_id: Any, *, database: str) -> JobTaskResult | None:
    """Read the result of a job by its id. None if there is no such job."""
    from ..storage.lookups import find_job

    job = find_job(database, job_id)
    return None if job is None else make_result(cast(Any, job))
