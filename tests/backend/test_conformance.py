"""The conformance tests of django.tasks, with our backend."""

from __future__ import annotations

import subprocess
from typing import Any, ClassVar

import django
from django.core.management import call_command
from django.test import TransactionTestCase

from django_jobqueue import registry
from django_jobqueue.backend import handler
from tests.conformance.contract import PROMISES, BackendConformance
from tests.processes import WorkerProcess, make_worker_env

# Short for a test, but long enough for a slow machine.
HEARTBEAT_ENV = {"JOBQUEUE_HEARTBEAT_INTERVAL": "0.5", "JOBQUEUE_HEARTBEAT_TTL": "3"}


class TestOurBackend(BackendConformance, TransactionTestCase):
    tasks_setting: ClassVar[dict[str, Any]] = {
        "BACKEND": "django_jobqueue.backend.JobQueueBackend"
    }
    promises: ClassVar[set[str]] = set(PROMISES)
    if django.VERSION < (6, 1):
        # Before 6.1 Django's own tasks cannot be pickled either.
        test_tasks_and_results_can_be_pickled = None

    def run_tasks(self) -> None:
        call_command("runworker", burst=True, concurrency=1, verbosity=0)

    def start_worker(self) -> subprocess.Popen[Any]:
        worker = WorkerProcess(make_worker_env(), **HEARTBEAT_ENV)
        self.addCleanup(worker.__exit__, None, None, None)
        return worker.process

    def retried(self, task: Any) -> Any:
        return task.using(max_attempts=3, backoff=0)

    def forget_task(self, path: str) -> None:
        registry._registry.pop(path, None)
        registry._announced.pop(path, None)
        handler._announced.pop(path, None)
