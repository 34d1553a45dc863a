"""dj-queue: a supervisor that forks workers with threads, notified by LISTEN."""

from __future__ import annotations

from benchmarks.system import timed
from benchmarks.systems.django_project import (
    TasksSystem,
    execute,
    find_task,
    manage,
)

THREADS = 3

FILL_FINISHED = """
    INSERT INTO dj_queue_jobs (
        id,
        task_path,
        queue_name,
        priority,
        payload,
        backend_alias,
        finished_at,
        created_at,
        updated_at
    )
    SELECT
        gen_random_uuid(),
        'benchmarks.systems.tasks.nothing',
        'default',
        0,
        '{"args": [], "kwargs": {}}',
        'default',
        now(),
        now(),
        now()
    FROM generate_series(1, %(finished)s)
"""
FILL_FUTURE = """
    WITH jobs AS (
        INSERT INTO dj_queue_jobs (
            id,
            task_path,
            queue_name,
            priority,
            payload,
            backend_alias,
            scheduled_at,
            created_at,
            updated_at
        )
        SELECT
            gen_random_uuid(),
            'benchmarks.systems.tasks.nothing',
            'default',
            0,
            '{"args": [], "kwargs": {}}',
            'default',
            now() + interval '1 year',
            now(),
            now()
        FROM generate_series(1, %(future)s)
        RETURNING id, scheduled_at
    )
    INSERT INTO dj_queue_scheduled_executions (
        job_id,
        backend_alias,
        queue_name,
        priority,
        scheduled_at,
        created_at
    )
    SELECT id, 'default', 'default', 0, scheduled_at, now()
    FROM jobs
"""
HAS_WORK = """
    SELECT
        EXISTS (SELECT FROM dj_queue_ready_executions)
        OR EXISTS (SELECT FROM dj_queue_claimed_executions)
"""


class DjQueue(TasksSystem):
    def clear(self) -> None:
        execute("TRUNCATE dj_queue_jobs, benchmarks_written CASCADE")

    def has_work(self) -> bool:
        return bool(execute(HAS_WORK))

    def enqueue_bulk(self, handler: str, count: int) -> float:
        task = find_task(handler)
        calls = [(task, [], {}) for _ in range(count)]
        return timed(lambda: task.get_backend().enqueue_all(calls))

    def fill(self, finished: int, future: int) -> None:
        execute(FILL_FINISHED, {"finished": finished})
        execute(FILL_FUTURE, {"future": future})

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        return [manage("dj_queue")]

    def worker_environment(
        self, processes: int, concurrency: int | None, handler: str
    ) -> dict[str, str]:
        return {
            "BENCH_PROCESSES": str(processes),
            "BENCH_THREADS": str(concurrency or THREADS),
        }


def make_system() -> DjQueue:
    return DjQueue()
