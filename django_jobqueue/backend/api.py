"""The names of django.tasks, from Django 6 or from the django-tasks backport on 5.2.

The only module that imports either of them. It imports no model: backends are created
while modules with tasks are imported, before the app registry is ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from types import SimpleNamespace

    Task: Any
    TaskContext: Any
    TaskError: Any
    TaskResult: Any
    TaskResultStatus: Any
    BaseTaskBackend: Any
    InvalidTask: Any
    TaskResultDoesNotExist: Any
    TaskResultMismatch: Any
    task: Any
    task_backends: Any
    normalize_json: Any
    signals: SimpleNamespace
else:
    try:
        from django.tasks import signals, task, task_backends
        from django.tasks.backends.base import BaseTaskBackend
        from django.tasks.base import (
            Task,
            TaskContext,
            TaskError,
            TaskResult,
            TaskResultStatus,
        )
        from django.tasks.exceptions import (
            InvalidTask,
            TaskResultDoesNotExist,
            TaskResultMismatch,
        )
        from django.utils.json import normalize_json
    except ImportError:
        try:
            from django_tasks import signals, task, task_backends
            from django_tasks.backends.base import BaseTaskBackend
            from django_tasks.base import (
                Task,
                TaskContext,
                TaskError,
                TaskResult,
                TaskResultStatus,
            )
            from django_tasks.exceptions import (
                InvalidTaskError as InvalidTask,
            )
            from django_tasks.exceptions import (
                TaskResultDoesNotExist,
                TaskResultMismatch,
            )
            from django_tasks.utils import normalize_json
        except ImportError as error:
            raise ImproperlyConfigured(
                "JobQueueBackend needs django.tasks: Django 6.0, or on Django 5.2 the "
                "backport (pip install django-tasks)."
            ) from error

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "normalize_json",
    "signals",
    "task",
    "task_backends",
]
