"""Our system: `manage.py runworker` with defaults, on PostgreSQL or SQLite."""

from __future__ import annotations

import time
from typing import Any

from django.db import connection, transaction

from benchmarks.system import timed
from benchmarks.systems.django_project import DjangoSystem, execute, manage

FILL = """
    INSERT INTO jobqueue_job (
        id,
        job_type,
        status,
        run_at,
        created_at,
        claimed_at,
        started_at,
        finished_at,
        prune_at,
        attempts,
        lease_token
    )
    SELECT
        gen_random_uuid(),
        'benchmarks.nothing',
        'succeeded',
        now() - interval '1 hour',
        now() - interval '1 hour',
        now() - interval '1 hour',
        now() - interval '1 hour',
        now() - interval '1 hour',
        now() + interval '1 day',
        1,
        1
    FROM generate_series(1, %(finished)s)
    UNION ALL
    SELECT
        gen_random_uuid(),
        'benchmarks.nothing',
        'scheduled',
        now() + interval '1 year',
        now(),
        NULL,
        NULL,
        NULL,
        NULL,
        0,
        0
    FROM generate_series(1, %(future)s)
"""
FILL_OTHERS = """
    INSERT INTO jobqueue_job (id, job_type, queue, status, priority, rank)
    SELECT gen_random_uuid(), 'benchmarks.nothing', 'others', 'pending', 50, number
    FROM generate_series(1, %(pending)s) AS number
"""


class JobQueue(DjangoSystem):
    def clear(self) -> None:
        if connection.vendor == "postgresql":
            execute("TRUNCATE jobqueue_job, jobqueue_attempt, benchmarks_written")
        else:
            for table in ("jobqueue_job", "jobqueue_attempt", "benchmarks_written"):
                execute(f"DELETE FROM {table}")

    def has_work(self) -> bool:
        from django_jobqueue import Job

        # Two look-ups in partial indexes, whatever the number of rows.
        jobs = Job.objects.filter(queue="default")
        running = Job.objects.filter(worker_id__isnull=False)
        return jobs.filter(status="pending").exists() or running.exists()

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        from benchmarks import jobs

        getattr(jobs, handler).enqueue(**payload)

    def enqueue_urgent(self) -> None:
        from benchmarks import jobs

        jobs.stamp.using(priority=100).enqueue(sent=time.monotonic_ns())

    def enqueue_together(self, handler: str, count: int) -> float:
        def enqueue() -> None:
            with transaction.atomic():
                self.enqueue_each(handler, count)

        return timed(enqueue)

    def enqueue_bulk(self, handler: str, count: int) -> float:
        from django_jobqueue import Job, JobSpec

        specs = (JobSpec(f"benchmarks.{handler}", {}) for _ in range(count))
        return timed(lambda: Job.objects.enqueue_many(specs))

    def fill(self, finished: int, future: int) -> None:
        execute(FILL, {"finished": finished, "future": future})

    def fill_others(self, pending: int) -> None:
        execute(FILL_OTHERS, {"pending": pending})

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        flags = ["--processes", str(processes)] if processes > 1 else []
        if concurrency:
            flags += ["--concurrency", str(concurrency)]
        return [manage("runworker", *flags)]


def make_system() -> JobQueue:
    return JobQueue()
