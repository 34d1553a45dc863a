"""Jobs beside a hostile case: healthy ones must run, unrelated ones must not change.

Deleted with SQL: a hostile row must not stop the clean-up.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils import timezone

from django_jobqueue import DeadJob, Job, JobSpec
from django_jobqueue.models import Queue
from tests.testapp import hostile_jobs
from tests.testapp.models import Effect

HEALTHY_JOBS = 20
# No worker may change the jobs of this queue.
UNRELATED_QUEUE = "unrelated"
EXPECTED_CONTEXT = {
    "language": "en",
    "time zone": "UTC",
    "decimal precision": "28",
    "context variable": "clean",
    "autocommit": "True",
}


def enqueue_healthy() -> list[JobSpec]:
    """Enqueue jobs of every kind that succeed unless the case prevents it."""
    handlers = [
        hostile_jobs.succeed,
        hostile_jobs.succeed_async,
        hostile_jobs.succeed_atomically,
        hostile_jobs.return_context,
        hostile_jobs.return_context_async,
    ]
    specs = [handlers[number % len(handlers)].spec() for number in range(HEALTHY_JOBS)]
    Job.objects.enqueue_many(specs)
    return specs


def find_unhealthy(specs: Sequence[JobSpec]) -> list[str]:
    """Return findings about jobs that should have succeeded, their states first."""
    ids = [spec.id for spec in specs]
    rows = dict(Job.objects.filter(pk__in=ids).values_list("pk", "status"))
    states = Counter(rows.get(id, "gone or dead") for id in ids)
    if states != {"succeeded": len(ids)}:
        return [f"of {len(ids)} healthy jobs: {dict(states)}"]
    return [*_find_wrong_effects(specs), *_find_changed_context(ids)]


def _find_wrong_effects(specs: Sequence[JobSpec]) -> list[str]:
    atomic = [spec.id for spec in specs if "atomically" in spec.job_type]
    effects = Counter(
        Effect.objects.filter(job_id__in=atomic).values_list("job_id", flat=True)
    )
    return [
        f"an atomic job left {effects[id]} effects" for id in atomic if effects[id] != 1
    ]


def _find_changed_context(ids: Sequence[UUID]) -> list[str]:
    rows = Job.objects.filter(pk__in=ids, job_type__contains="return_context")
    return sorted(
        {
            f"{name} is {found[name]!r} for the next job, not {value!r}"
            for found in rows.values_list("result", flat=True)
            for name, value in EXPECTED_CONTEXT.items()
            if found.get(name, value) != value
        }
    )


def insert_unrelated() -> None:
    """Insert rows of each status that no worker changes, in a separate queue."""
    now = timezone.now()
    later = now + timedelta(days=1000)
    common: dict[str, Any] = {
        "queue": UNRELATED_QUEUE,
        "job_type": hostile_jobs.succeed.name,
        "payload": {"number": 7},
        "run_at": later,
        "rank": 0,
    }
    ended = {"finished_at": now, "prune_at": later}
    Queue.objects.create(name=UNRELATED_QUEUE)
    Job.objects.bulk_create(
        [
            Job(**common, status="scheduled", unique_key="mine"),
            Job(**common, status="blocked"),
            Job(**common, **ended, status="succeeded", result=[1, 2]),
            Job(**common, **ended, status="cancelled"),
        ]
    )
    del common["rank"]
    DeadJob.objects.create(**common, error="long ago")


def read_unrelated() -> str:
    """Return everything that the tables hold about the unrelated jobs."""
    jobs = Job.objects.filter(queue=UNRELATED_QUEUE).order_by("pk").values()
    dead = DeadJob.objects.filter(queue=UNRELATED_QUEUE).order_by("pk").values()
    queues = Queue.objects.filter(name=UNRELATED_QUEUE).values()
    return json.dumps([*jobs, *dead, *queues], default=str, indent=1)


def delete_other_jobs() -> None:
    """Delete every job but the unrelated ones, whatever its columns hold."""
    with connection.cursor() as cursor:
        for table in ("jobqueue_job", "jobqueue_deadjob"):
            cursor.execute(f"DELETE FROM {table} WHERE queue <> %s", [UNRELATED_QUEUE])
        cursor.execute("DELETE FROM jobqueue_attempt")
        cursor.execute("DELETE FROM testapp_effect")


def delete_all_rows() -> None:
    """Empty all tables, as a test expects them."""
    with connection.cursor() as cursor:
        for table in ("job", "deadjob", "attempt", "queue", "workerheartbeat"):
            cursor.execute(f"DELETE FROM jobqueue_{table}")
        cursor.execute("DELETE FROM testapp_effect")
