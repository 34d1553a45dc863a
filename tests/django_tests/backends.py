"""Our backend in place of Django's two, with the interface their tests expect."""

from __future__ import annotations

from copy import copy
from typing import Any

from django.core.management import call_command
from django.db import connection

from django_jobqueue.backend import JobQueueBackend, JobTaskResult
from django_jobqueue.models import Attempt, DeadJob, Job


def delete_jobs() -> None:
    for model in (Job, DeadJob, Attempt):
        model.objects.all().delete()


class WaitingBackend(JobQueueBackend):
    """Replaces DummyBackend: no worker runs, and tests read `results`."""

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.results: list[JobTaskResult] = []

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> JobTaskResult:
        result = super().enqueue(task, args, kwargs)
        # A copy, as in DummyBackend: a test may change one and not the other.
        self.results.append(copy(result))
        return result

    def clear(self) -> None:
        self.results.clear()
        delete_jobs()


class WorkerBackend(JobQueueBackend):
    """Replaces ImmediateBackend: a worker runs each task before enqueue returns."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> JobTaskResult:
        result = super().enqueue(task, args, kwargs)
        # A worker sees the job only after the commit.
        if not connection.in_atomic_block:
            call_command("runworker", burst=True, concurrency=1, verbosity=0)
            result.refresh()
        return result
