"""Our backend keeps the contract of django.tasks, and what it promises beyond it."""

from __future__ import annotations

import subprocess
from typing import Any, ClassVar

import django
from django.core.management import call_command
from django.test import TransactionTestCase

from django_jobqueue import registry
from django_jobqueue.backend import handler
from django_jobqueue.testing.conformance import PROMISES, BackendConformance
from tests.processes import WorkerProcess, make_worker_env

# Short enough for a test, long enough for a busy machine.
BEATS = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.5", "JOBQUEUE_HEARTBEAT_TTL": "3"}


class TestOurBackend(BackendConformance, TransactionTestCase):
    tasks_setting: ClassVar[dict[str, Any]] = {
        "BACKEND": "django_jobqueue.backend.JobQueueBackend"
    }
    promises: ClassVar[set[str]] = set(PROMISES)
    if django.VERSION < (6, 1):
        # Django's own tasks cannot either.
        test_tasks_and_results_can_be_pickled = None

    def run_tasks(self) -> None:
        call_command("runworker", burst=True, concurrency=1, verbosity=0)

    def start_worker(self) -> subprocess.Popen[Any]:
        worker = WorkerProcess(make_worker_env(), **BEATS)
        self.addCleanup(worker.__exit__, None, None, None)
        return worker.process

    def retried(self, task: Any) -> Any:
        return task.using(max_attempts=3, backoff=0)

    def forget_task(self, path: str) -> None:
        registry._registry.pop(path, None)
        registry._announced.pop(path, None)
        handler._announced.pop(path, None)
