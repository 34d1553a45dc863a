"""TaskHandler: a task of django.tasks in the registry, beside the handlers of @job.

A task is announced when it is defined. Its handler is created on the first look-up,
because the module may go on with `send = send.using(…)`, and the last one counts.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps

from ..context import JobContext
from ..exceptions import InvalidArguments
from ..handlers import Handler
from ..options import get_options
from ..registry import announce, find_handler
from . import relay
from .api import Task, TaskContext, normalize_json
from .results import read_result
from .task import USING_OPTIONS, read_code_options, read_row_options

# Row options that the handler has too, as defaults for jobs without them.
POLICY_OPTIONS = ("max_attempts", "timeout", "backoff")

logger = logging.getLogger("django_jobqueue.worker")

# Module path → function.
_announced: dict[str, Callable[..., Any]] = {}


class TaskArgumentsError(InvalidArguments, TypeError):
    """The arguments do not fit the task's function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTaskContext(TaskContext):  # type: ignore[misc]
    """Django's TaskContext, with the attributes and methods of our JobContext."""

    job: JobContext

    @property
    def attempt(self) -> int:
        return self.job.attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(self.job, name)


class TaskHandler(Handler[..., Any]):
    """A handler that calls the function of a task."""

    using_options = USING_OPTIONS

    def __init__(self, task: Any) -> None:
        row = read_row_options(task)
        options = {name: row.get(name) for name in POLICY_OPTIONS}
        super().__init__(
            task.func,
            name=task.module_path,
            queue=task.queue_name,
            priority=int(task.priority),
            takes_context=task.takes_context,
            **{**options, **read_code_options(task)},
        )
        self.task = task

    def check_arguments(self, payload: Any, args: Any = ()) -> None:
        try:
            super().check_arguments(payload, args)
        except InvalidArguments as error:
            # In Python and in django.tasks a call with wrong arguments is a TypeError.
            raise TaskArgumentsError(str(error)) from None

    def call(
        self, context: JobContext | None, args: list[Any], payload: dict[str, Any]
    ) -> Any:
        """Call the function. What it returns is normalized as django.tasks does."""
        if self.is_async:
            return self._call_async(context, args, payload)
        if context is not None and self.takes_context:
            args = [_make_context(context), *args]
        return normalize_json(self.function(*args, **payload))

    async def _call_async(
        self, context: JobContext | None, args: list[Any], payload: dict[str, Any]
    ) -> Any:
        if context is not None and self.takes_context:
            args = [await sync_to_async(_make_context)(context), *args]
        return normalize_json(await self.function(*args, **payload))

    def _check_parameter_kinds(self) -> None:
        """Allow positional-only arguments: a task takes positional arguments."""


def _make_context(context: JobContext) -> JobTaskContext:
    result = read_result(context.job_id, database=get_options().database)
    return JobTaskContext(task_result=result, job=context)


def announce_task(task: Any) -> None:
    """Register a task under the path of its function; again after a module reload."""
    path = task.module_path
    if _announced.get(path) is not task.func:
        _announced[path] = task.func
        announce(path, partial(_make_handler, task))
        relay.connect()


def _make_handler(announced: Any) -> TaskHandler:
    """Return a handler for the task that the module has under this name now."""
    module = sys.modules.get(announced.func.__module__)
    found = getattr(module, announced.func.__name__, None)
    is_same = isinstance(found, Task) and found.func is announced.func
    return TaskHandler(found if is_same else announced)


def import_task(path: str) -> TaskHandler | None:
    """Import the module that a task's job names, and return the task's handler.

    Only from an installed app, and only if the name is a Task there: a row must not
    be able to run any other code.
    """
    module_name, _, name = path.rpartition(".")
    if apps.get_containing_app_config(module_name) is None:
        return None
    try:
        found = getattr(import_module(module_name), name, None)
    except Exception:
        logger.exception("cannot import %s for a task", module_name)
        return None
    if isinstance(found, Task) and found.module_path == path:
        announce_task(found)
    handler = find_handler(path)
    return handler if isinstance(handler, TaskHandler) else None
