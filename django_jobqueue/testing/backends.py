"""Django's own backends for tests, with our task class.

A module with `@task(max_attempts=5)` cannot be imported under Django's ImmediateBackend
or DummyBackend, because their task class has no such option. Under these it can.

    TASKS = {"default": {"BACKEND": "django_jobqueue.testing.backends.DummyBackend"}}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..backend.task import JobTask

if TYPE_CHECKING:
    dummy: Any
    immediate: Any
else:
    try:
        from django.tasks.backends import dummy, immediate
    except ImportError:  # Django 5.2 with the backport
        from django_tasks.backends import dummy, immediate


class ImmediateBackend(immediate.ImmediateBackend):  # type: ignore[misc]
    """Runs each task inside enqueue(), in the caller's thread."""

    task_class = JobTask


class DummyBackend(dummy.DummyBackend):  # type: ignore[misc]
    """Runs no task, and keeps the results in `results`."""

    task_class = JobTask
