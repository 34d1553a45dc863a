"""TaskHandler: a task of django.tasks in the registry, beside the handlers of @job.

A task is announced when its module is imported and made into a handler when somebody
asks for it: the module may still say `send = send.using(…)`, and that one counts.
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
from .api import Task, TaskContext
from .results import read_result
from .task import read_code_options, read_row_options

# Options of a row that a handler has as well, for jobs that do not say otherwise.
POLICY = ("max_attempts", "timeout", "backoff")

logger = logging.getLogger("django_jobqueue.worker")


# Path → function.
_announced: dict[str, Callable[..., Any]] = {}


class TaskArgumentsError(InvalidArguments, TypeError):
    """The arguments do not fit the task's function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTaskContext(TaskContext):  # type: ignore[misc]
    """Django's TaskContext, with all that our JobContext has."""

    job: JobContext

    @property
    def attempt(self) -> int:
        return self.job.attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(self.job, name)


class TaskHandler(Handler[..., Any]):
    """Runs the function of a task."""

    def __init__(self, task: Any) -> None:
        row = read_row_options(task)
        options = {name: row.get(name) for name in POLICY}
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
            # A wrong call of a function is a TypeError, and so it is in django.tasks.
            raise TaskArgumentsError(str(error)) from None

    def call(
        self, context: JobContext | None, args: list[Any], payload: dict[str, Any]
    ) -> Any:
        if context is None or not self.takes_context:
            return self.function(*args, **payload)
        if self.is_async:
            return self._call_async(context, args, payload)
        return self.function(_make_context(context), *args, **payload)

    async def _call_async(
        self, context: JobContext, args: list[Any], payload: dict[str, Any]
    ) -> Any:
        full = await sync_to_async(_make_context)(context)
        return await self.function(full, *args, **payload)

    def _check_names(self) -> None:
        """Let positional-only arguments be: a task has positions."""


def _make_context(context: JobContext) -> JobTaskContext:
    result = read_result(context.job_id, database=get_options().database)
    return JobTaskContext(task_result=result, job=context)


def announce_task(task: Any) -> None:
    """Enter a task under the path of its function, anew if its module was reloaded."""
    path = task.module_path
    if _announced.get(path) is not task.func:
        _announced[path] = task.func
        announce(path, partial(_make_handler, task))
        relay.connect()


def _make_handler(announced: Any) -> TaskHandler:
    """Make the handler of what the module has under that name in the end."""
    module = sys.modules.get(announced.func.__module__)
    found = getattr(module, announced.func.__name__, None)
    is_same = isinstance(found, Task) and found.func is announced.func
    return TaskHandler(found if is_same else announced)


def import_task(path: str) -> TaskHandler | None:
    """Import the module that the job of a task names, and return the task's handler.

    Only a module of an installed app, and only if it has a Task of that name: a row
    shall not run whatever it likes.
    """
    module_name, _, name = path.rpartition(".")
    if apps.get_containing_app_config(module_name) is None:
        return None
    try:
        found = getattr(import_module(module_name), name, None)
    except Exception:
        logger.exception("importing %s for a task failed", module_name)
        return None
    if isinstance(found, Task) and found.module_path == path:
        announce_task(found)
    handler = find_handler(path)
    return handler if isinstance(handler, TaskHandler) else None
