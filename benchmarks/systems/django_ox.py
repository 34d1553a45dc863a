"""django-ox: threads that claim one task each, by polling."""

from __future__ import annotations

from benchmarks.system import timed
from benchmarks.systems.django_project import (
    TasksSystem,
    execute,
    find_task,
    manage,
)

CONCURRENCY = 4

FILL = """
    INSERT INTO django_ox_oxtask (
        id,
        task_path,
        args,
        kwargs,
        queue_name,
        priority,
        takes_context,
        backend_name,
        status,
        run_after,
        attempts,
        max_attempts,
        errors,
        worker_ids,
        enqueued_at,
        finished_at,
        lease_epoch
    )
    SELECT
        gen_random_uuid(),
        'benchmarks.systems.tasks.nothing',
        '[]',
        '{}',
        'default',
        0,
        false,
        'default',
        status,
        run_after,
        0,
        3,
        '[]',
        '[]',
        now(),
        finished_at,
        0
    FROM (
        SELECT 'SUCCESSFUL', NULL, now()
        FROM generate_series(1, %(finished)s)
        UNION ALL
        SELECT 'READY', now() + interval '1 year', NULL
        FROM generate_series(1, %(future)s)
    ) AS rows (status, run_after, finished_at)
"""
HAS_WORK = """
    SELECT EXISTS (
        SELECT
        FROM django_ox_oxtask
        WHERE status IN ('READY', 'RUNNING')
        AND (run_after IS NULL OR run_after < now())
    )
"""


class DjangoOx(TasksSystem):
    def clear(self) -> None:
        execute("TRUNCATE django_ox_oxtask, benchmarks_written CASCADE")

    def has_work(self) -> bool:
        return bool(execute(HAS_WORK))

    def enqueue_bulk(self, handler: str, count: int) -> float:
        from django_ox.bulk import enqueue_many

        calls = (((), {}) for _ in range(count))
        return timed(lambda: enqueue_many(find_task(handler), calls))

    def fill(self, finished: int, future: int) -> None:
        execute(FILL, {"finished": finished, "future": future})

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        flags = ["--concurrency", str(concurrency or CONCURRENCY)]
        if processes > 1:
            flags += ["--processes", str(processes)]
        return [manage("ox_worker", *flags)]


def make_system() -> DjangoOx:
    return DjangoOx()
