"""Shared parts of the systems that live in a Django project."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.system import System, Unsupported, python, timed


def set_up_django() -> None:
    """Set up Django in this process."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    import django

    django.setup()


def migrate() -> None:
    """Create all tables, including the one of the `write` job."""
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0)


def execute(statement: str, parameters: dict[str, Any] | None = None) -> Any:
    """Run one statement in autocommit; return the first value of the first row."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchone()[0] if cursor.description else None


class DjangoSystem(System):
    """A system whose worker is a management command of benchmarks.settings."""

    def __init__(self) -> None:
        set_up_django()

    def prepare(self) -> None:
        migrate()

    def close(self) -> None:
        from django.db import connections

        connections.close_all()


def manage(*arguments: str) -> list[str]:
    """Return a management command."""
    return python("-m", "django", *arguments, "--settings", "benchmarks.settings")


class TasksSystem(DjangoSystem):
    """A system that is a backend of django.tasks."""

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        find_task(handler).enqueue(**payload)

    def enqueue_together(self, handler: str, count: int) -> float:
        from django.db import transaction

        def enqueue() -> None:
            with transaction.atomic():
                self.enqueue_each(handler, count)

        return timed(enqueue)


def find_task(handler: str) -> Any:
    """Return the task of django.tasks for one of the measured handlers."""
    from benchmarks.systems import tasks

    if not hasattr(tasks, handler):
        raise Unsupported("async tasks run one after the other")
    return getattr(tasks, handler)
