"""Procrastinate with its asynchronous connector.

procrastinate --app benchmarks.systems.procrastinate.app worker    # the worker
"""

from __future__ import annotations

import os
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from benchmarks import handlers
from benchmarks.system import System, database_url, script, timed
from benchmarks.systems.django_project import migrate, set_up_django

CONCURRENCY = 30
CHUNK = 5_000

FILL = """
    INSERT INTO procrastinate_jobs (queue_name, task_name, status, scheduled_at)
    SELECT 'default', 'nothing', 'succeeded'::procrastinate_job_status, NULL
    FROM generate_series(1, %(finished)s)
    UNION ALL
    SELECT
        'default',
        'nothing',
        'todo'::procrastinate_job_status,
        now() + interval '1 year'
    FROM generate_series(1, %(future)s)
"""
HAS_WORK = """
    SELECT EXISTS (
        SELECT
        FROM procrastinate_jobs
        WHERE status IN ('todo', 'doing')
        AND (scheduled_at IS NULL OR scheduled_at < now())
    )
"""

IS_WORKER = bool(os.environ.get("BENCH_WORKER"))
connector = PsycopgConnector if IS_WORKER else SyncPsycopgConnector
app = App(connector=connector(conninfo=database_url()))

if IS_WORKER:
    set_up_django()


@app.task(name="nothing")
async def nothing() -> None:
    handlers.nothing()


@app.task(name="stamp")
async def stamp(sent: int) -> None:
    handlers.stamp(sent)


@app.task(name="sleep")
async def sleep() -> None:
    await handlers.asleep()


@app.task(name="asleep")
async def asleep() -> None:
    await handlers.asleep()


@app.task(name="write")
async def write() -> None:
    await handlers.awrite()


@app.task(name="burn")
async def burn() -> None:
    handlers.burn()


class ProcrastinateSystem(System):
    def __init__(self) -> None:
        self.connection = psycopg.connect(database_url(), autocommit=True)
        app.open()

    def prepare(self) -> None:
        app.schema_manager.apply_schema()
        set_up_django()
        migrate()

    def clear(self) -> None:
        self.connection.execute("TRUNCATE procrastinate_jobs CASCADE")

    def has_work(self) -> bool:
        [[found]] = self.connection.execute(HAS_WORK).fetchall()
        return bool(found)

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        app.tasks[handler].defer(**payload)

    def enqueue_together(self, handler: str, count: int) -> float:
        def enqueue() -> None:
            with self.connection.transaction():
                deferrer = app.tasks[handler].configure(connection=self.connection)
                for _ in range(count):
                    deferrer.defer()

        return timed(enqueue)

    def enqueue_bulk(self, handler: str, count: int) -> float:
        def enqueue() -> None:
            for start in range(0, count, CHUNK):
                size = min(CHUNK, count - start)
                app.tasks[handler].batch_defer(*[{}] * size)

        return timed(enqueue)

    def fill(self, finished: int, future: int) -> None:
        self.connection.execute(FILL, {"finished": finished, "future": future})

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        flags = ["--concurrency", str(concurrency or CONCURRENCY)]
        name = "benchmarks.systems.procrastinate.app"
        command = script("procrastinate", "--app", name, "worker", *flags)
        return [command] * processes

    def worker_environment(
        self, processes: int, concurrency: int | None, handler: str
    ) -> dict[str, str]:
        return {"BENCH_WORKER": "1"}

    def close(self) -> None:
        app.close()
        self.connection.close()


def make_system() -> ProcrastinateSystem:
    return ProcrastinateSystem()
