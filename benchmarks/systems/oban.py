"""Oban for Python, the open source edition, run by its command `oban start`."""

from __future__ import annotations

import os
from typing import Any

from oban import Oban, job
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from benchmarks import handlers
from benchmarks.system import AsyncSystem, database_url, script, timed
from benchmarks.systems.django_project import migrate, set_up_django

LIMIT = 100
CHUNK = 1_000

FILL = """
    INSERT INTO oban_jobs (state, worker, attempt, scheduled_at, completed_at)
    SELECT
        'completed'::oban_job_state,
        'benchmarks.systems.oban.nothing',
        1,
        timezone('UTC', now()),
        timezone('UTC', now())
    FROM generate_series(1, %(finished)s)
    UNION ALL
    SELECT
        'scheduled'::oban_job_state,
        'benchmarks.systems.oban.nothing',
        0,
        timezone('UTC', now()) + interval '1 year',
        NULL
    FROM generate_series(1, %(future)s)
"""
HAS_WORK = """
    SELECT EXISTS (
        SELECT FROM oban_jobs WHERE state IN ('available', 'executing', 'retryable')
    )
"""

if os.environ.get("BENCH_WORKER"):
    set_up_django()


@job()
async def nothing() -> None:
    handlers.nothing()


@job()
async def stamp(sent: int) -> None:
    handlers.stamp(sent)


@job()
async def sleep() -> None:
    await handlers.asleep()


@job()
async def asleep() -> None:
    await handlers.asleep()


@job()
async def write() -> None:
    await handlers.awrite()


@job()
async def burn() -> None:
    handlers.burn()


JOBS: dict[str, Any] = {
    "nothing": nothing,
    "stamp": stamp,
    "sleep": sleep,
    "asleep": asleep,
    "write": write,
    "burn": burn,
}


class ObanSystem(AsyncSystem):
    def __init__(self) -> None:
        super().__init__()
        self.run(self._open())

    def prepare(self) -> None:
        self.run(install(self.pool))
        set_up_django()
        migrate()

    def clear(self) -> None:
        self.run(self._execute("TRUNCATE oban_jobs"))

    def has_work(self) -> bool:
        return bool(self.run(self._execute(HAS_WORK)))

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        self.run(self.oban.enqueue(JOBS[handler].new(**payload)))

    def enqueue_each(self, handler: str, count: int) -> float:
        return timed(lambda: self.run(self._enqueue_each(handler, count)))

    def enqueue_together(self, handler: str, count: int) -> float:
        async def enqueue() -> None:
            async with self.pool.connection() as connection:
                await self._enqueue_each(handler, count, conn=connection)

        return timed(lambda: self.run(enqueue()))

    def enqueue_bulk(self, handler: str, count: int) -> float:
        async def enqueue() -> None:
            for start in range(0, count, CHUNK):
                size = min(CHUNK, count - start)
                await self.oban.enqueue_many(JOBS[handler].new() for _ in range(size))

        return timed(lambda: self.run(enqueue()))

    def fill(self, finished: int, future: int) -> None:
        self.run(self._execute(FILL, {"finished": finished, "future": future}))

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        flags = ["--dsn", database_url(), "--log-level", "WARNING"]
        flags += ["--queues", f"default:{concurrency or LIMIT}"]
        flags += ["--cron-modules", "benchmarks.systems.oban"]
        return [script("oban", "start", *flags)] * processes

    def worker_environment(
        self, processes: int, concurrency: int | None, handler: str
    ) -> dict[str, str]:
        return {"BENCH_WORKER": "1"}

    def close(self) -> None:
        self.run(self.pool.close())
        super().close()

    async def _open(self) -> None:
        self.pool = AsyncConnectionPool(database_url(), min_size=1, open=False)
        await self.pool.open()
        self.oban = Oban(pool=self.pool)

    async def _enqueue_each(self, handler: str, count: int, **where: Any) -> None:
        for _ in range(count):
            await self.oban.enqueue(JOBS[handler].new(), **where)

    async def _execute(self, statement: str, parameters: Any = None) -> Any:
        async with self.pool.connection() as connection:
            cursor = await connection.execute(statement, parameters)
            row = await cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def make_system() -> ObanSystem:
    return ObanSystem()
