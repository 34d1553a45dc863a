"""django-tasks-db: one task at a time in each process, by polling."""

from __future__ import annotations

from benchmarks.system import Unsupported
from benchmarks.systems.django_project import TasksSystem, execute, manage

FILL = """
    INSERT INTO django_tasks_database_dbtaskresult (
        id,
        status,
        enqueued_at,
        finished_at,
        args_kwargs,
        priority,
        task_path,
        worker_ids,
        queue_name,
        backend_name,
        run_after,
        exception_class_path,
        traceback
    )
    SELECT
        gen_random_uuid(),
        status,
        now(),
        finished_at,
        '{"args": [], "kwargs": {}}',
        0,
        'benchmarks.systems.tasks.nothing',
        '[]',
        'default',
        'default',
        run_after,
        '',
        ''
    FROM (
        SELECT 'SUCCESSFUL', now(), now()
        FROM generate_series(1, %(finished)s)
        UNION ALL
        SELECT 'READY', NULL, now() + interval '1 year'
        FROM generate_series(1, %(future)s)
    ) AS rows (status, finished_at, run_after)
"""
HAS_WORK = """
    SELECT EXISTS (
        SELECT
        FROM django_tasks_database_dbtaskresult
        WHERE status IN ('READY', 'RUNNING')
        AND NOT run_after BETWEEN now() AND now() + interval '10 years'
    )
"""


class DjangoTasksDb(TasksSystem):
    def clear(self) -> None:
        execute("TRUNCATE django_tasks_database_dbtaskresult, benchmarks_written")

    def has_work(self) -> bool:
        return bool(execute(HAS_WORK))

    def fill(self, finished: int, future: int) -> None:
        execute(FILL, {"finished": finished, "future": future})

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        if concurrency:
            raise Unsupported("one job at a time in each process")
        return [manage("db_worker", "--no-startup-delay")] * processes


def make_system() -> DjangoTasksDb:
    return DjangoTasksDb()
