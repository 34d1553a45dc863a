"""Relay: sends Django's own signals task_started and task_finished for our tasks.

Connected to our signals when the first task is announced. task_finished is sent once,
for the end of the job, not for each attempt. Of a failure it is sent while the
exception is active, because Django's log receiver reads sys.exc_info().
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from ..exceptions import (
    JobCancelled,
    JobDead,
    JobTimeout,
    UnknownJobType,
    WorkerCrashed,
    WorkerLost,
)
from ..options import get_options
from ..registry import find_handler
from ..signals import job_cancelled, job_died, job_started, job_succeeded
from .api import TaskResultStatus, signals, task_backends
from .results import JobTaskResult, read_result

# DeadReason → the exception for an end that came without one. JobDead for the others.
_CLASS_OF_REASON: dict[str, type[BaseException]] = {
    "crashed": WorkerCrashed,
    "lost": WorkerLost,
    "timeout": JobTimeout,
    "unknown_handler": UnknownJobType,
}


def connect() -> None:
    """Connect to our signals. Idempotent."""
    job_started.connect(_relay_start, dispatch_uid="jobqueue-tasks")
    for signal in (job_succeeded, job_cancelled, job_died):
        signal.connect(_relay_end, dispatch_uid="jobqueue-tasks")


def _relay_start(*, job_id: UUID, job_type: str, **kwargs: Any) -> None:
    if task := _find_task(job_type):
        status = TaskResultStatus.RUNNING
        _send(
            signals.task_started,
            _make_result(signals.task_started, job_id, task, status),
        )


def _relay_end(*, signal: Any, job_id: UUID, job_type: str, **values: Any) -> None:
    task = _find_task(job_type)
    if task is None:
        return
    is_success = signal is job_succeeded
    status = TaskResultStatus.SUCCESSFUL if is_success else TaskResultStatus.FAILED
    result = _make_result(signals.task_finished, job_id, task, status)
    if is_success:
        _send(signals.task_finished, result)
        return
    exception = values.get("exception")
    if exception is None:
        exception = _rebuild_exception(signal, **values)
    _send_while_active(signals.task_finished, result, exception)


def _find_task(job_type: str) -> Any:
    return getattr(find_handler(job_type), "task", None)


def _make_result(signal: Any, job_id: UUID, task: Any, status: Any) -> JobTaskResult:
    result = None
    if _has_listeners(signal):
        result = read_result(job_id, database=get_options().database)
    if result is None:
        # Only Django's log listens, or the row is gone already (RETENTION 0).
        result = _make_light(job_id, task, status)
    # The row may have moved on: a later attempt may be running.
    object.__setattr__(result, "status", status)
    return result


def _has_listeners(signal: Any) -> bool:
    """Return whether a receiver besides Django's own log receiver is connected.

    For the log receiver alone nothing is read from the database.
    """
    return len(signal.receivers) > 1


def _rebuild_exception(
    signal: Any, *, reason: str = "", error: str = "", **kwargs: Any
) -> BaseException:
    """Return an exception for an end that raised none here: a crash, a lost lease."""
    if signal is job_cancelled:
        return JobCancelled(reason)
    cls = _CLASS_OF_REASON.get(reason, JobDead)
    # `error` is the short text of the dead job, which may begin with the class name.
    return cls(error.removeprefix(f"{cls.__name__}: "))


def _send(signal: Any, result: JobTaskResult) -> None:
    sender = type(task_backends[result.backend])
    signal.send_robust(sender, task_result=result)


def _send_while_active(
    signal: Any, result: JobTaskResult, exception: BaseException
) -> None:
    """Send a signal from inside an `except` block of this exception."""
    traceback, context = exception.__traceback__, exception.__context__
    try:
        raise exception
    except BaseException:
        # Raising it again added this frame and perhaps an unrelated context.
        BaseException.with_traceback(exception, traceback)
        exception.__context__ = context
        _send(signal, result)


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
