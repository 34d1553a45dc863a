"""The backends that the conformance tests compare."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, ClassVar

from django.core.management import call_command
from django.test import TransactionTestCase

from tests.backend.test_conformance import TestOurBackend
from tests.conformance.contract import PROMISES, BackendConformance


class Immediate(BackendConformance, TransactionTestCase):
    tasks_setting: ClassVar[dict[str, Any]] = {
        "BACKEND": "django.tasks.backends.immediate.ImmediateBackend"
    }
    promises: ClassVar[set[str]] = {"pickle"}


class Dummy(BackendConformance, TransactionTestCase):
    tasks_setting: ClassVar[dict[str, Any]] = {
        "BACKEND": "django.tasks.backends.dummy.DummyBackend"
    }
    promises: ClassVar[set[str]] = {"pickle"}
    runs_tasks: ClassVar[bool] = False


class TasksDb(BackendConformance, TransactionTestCase):
    """Tested for every promise except retries and crashes, which it does not make."""

    tasks_setting: ClassVar[dict[str, Any]] = {
        "BACKEND": "django_tasks_db.DatabaseBackend"
    }
    promises: ClassVar[set[str]] = set(PROMISES) - {"retry", "crash"}

    def run_tasks(self) -> None:
        call_command(
            "db_worker",
            queue_name="*",
            batch=True,
            reload=False,
            startup_delay=False,
            interval=0,
            verbosity=0,
        )


BACKENDS = {
    f"django_jobqueue {version('django-jobqueue')}": TestOurBackend,
    f"django-tasks-db {version('django-tasks-db')}": TasksDb,
    "Django's ImmediateBackend": Immediate,
    "Django's DummyBackend": Dummy,
}
