"""Relay: tells Django's own signals, task_started and task_finished, of our tasks.

Connected to our signals once the first task is announced. task_finished is sent once,
for the end of the job, not for each attempt. Django itself always listens, to log: for
it alone nothing is read from the database.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ..options import get_options
from ..registry import find_handler
from ..signals import job_cancelled, job_died, job_started, job_succeeded
from .api import TaskResultStatus, signals, task_backends
from .results import JobTaskResult, read_result


def connect() -> None:
    """Listen to our own signals from now on; again and again does no harm."""
    job_started.connect(_relay_start, dispatch_uid="jobqueue-tasks")
    for signal in (job_succeeded, job_cancelled, job_died):
        signal.connect(_relay_end, dispatch_uid="jobqueue-tasks")


def _relay_start(*, job_id: UUID, job_type: str, **kwargs: Any) -> None:
    if task := _find_task(job_type):
        _send(signals.task_started, job_id, task, TaskResultStatus.RUNNING)


def _relay_end(*, signal: Any, job_id: UUID, job_type: str, **kwargs: Any) -> None:
    if task := _find_task(job_type):
        status = TaskResultStatus.FAILED
        if signal is job_succeeded:
            status = TaskResultStatus.SUCCESSFUL
        _send(signals.task_finished, job_id, task, status)


def _find_task(job_type: str) -> Any:
    return getattr(find_handler(job_type), "task", None)


def _send(signal: Any, job_id: UUID, task: Any, status: Any) -> None:
    result = None
    if _has_listeners(signal):
        result = read_result(job_id, database=get_options().database)
    if result is None:
        # Nobody asks for more, or the row is gone already (RETENTION 0).
        result = _make_light(job_id, task, status)
    object.__setattr__(result, "status", status)
    sender = type(task_backends[result.backend])
    signal.send_robust(sender, task_result=result)


def _has_listeners(signal: Any) -> bool:
    """Tell whether anybody but Django's own log listens."""
    return len(signal.receivers) > 1


def _make_light(job_id: UUID, task: Any, status: Any) -> JobTaskResult:
    return JobTaskResult(
        task=task,
        id=str(job_id),
        status=status,
        enqueued_at=None,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=[],
        kwargs={},
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )
