"""PgQueuer on asyncpg and uvloop.

pgq run benchmarks.systems.pgqueuer:make_worker    # the worker
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks import handlers
from benchmarks.system import AsyncSystem, database_url, python, timed
from benchmarks.systems.django_project import migrate, set_up_django

BATCH = 100
CHUNK = 5_000

FILL = """
    WITH finished AS (
        INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint)
        SELECT number, 'successful', 0, 'nothing'
        FROM generate_series(1, $1::int) AS number
    )
    INSERT INTO pgqueuer (priority, status, entrypoint, execute_after)
    SELECT 0, 'queued', 'nothing', now() + interval '1 year'
    FROM generate_series(1, $2::int)
"""
HAS_WORK = """
    SELECT EXISTS (
        SELECT
        FROM pgqueuer
        WHERE execute_after < now()
        AND status IN ('queued', 'picked')
    )
"""


class PgQueuerSystem(AsyncSystem):
    def __init__(self) -> None:
        super().__init__()
        self.connection = self.run(asyncpg.connect(database_url()))
        self.queries = Queries(AsyncpgDriver(self.connection))

    def prepare(self) -> None:
        self.run(self.queries.install())
        self.run(self.queries.optimize_autovacuum())
        set_up_django()
        migrate()

    def clear(self) -> None:
        tables = "pgqueuer, pgqueuer_log, pgqueuer_statistics"
        self.run(self.connection.execute(f"TRUNCATE {tables}"))

    def has_work(self) -> bool:
        return bool(self.run(self.connection.fetchval(HAS_WORK)))

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        self.run(self.queries.enqueue(handler, json.dumps(payload).encode()))

    def enqueue_each(self, handler: str, count: int) -> float:
        return timed(lambda: self.run(self._enqueue_each(handler, count)))

    def enqueue_together(self, handler: str, count: int) -> float:
        async def enqueue() -> None:
            async with self.connection.transaction():
                await self._enqueue_each(handler, count)

        return timed(lambda: self.run(enqueue()))

    def enqueue_bulk(self, handler: str, count: int) -> float:
        return timed(lambda: self.run(self._enqueue_bulk(handler, count)))

    def fill(self, finished: int, future: int) -> None:
        self.run(self.connection.execute(FILL, finished, future))

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        # PgQueuer requires a concurrency of at least twice the batch.
        batch = min(BATCH, concurrency // 2) if concurrency else BATCH
        numbers = [str(batch), *([str(concurrency)] if concurrency else [])]
        command = python("-m", "benchmarks.systems.pgqueuer", *numbers)
        return [command] * processes

    async def _enqueue_each(self, handler: str, count: int) -> None:
        for _ in range(count):
            await self.queries.enqueue(handler, b"{}")

    async def _enqueue_bulk(self, handler: str, count: int) -> None:
        for start in range(0, count, CHUNK):
            size = min(CHUNK, count - start)
            await self.queries.enqueue([handler] * size, [b"{}"] * size, [0] * size)


async def run_worker(batch: int, concurrency: int | None) -> None:
    """Run jobs until SIGTERM."""
    connection = await asyncpg.connect(database_url())
    worker = PgQueuer.from_asyncpg_connection(connection)
    register(worker)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.shutdown.set)
    await worker.run(batch_size=batch, max_concurrent_tasks=concurrency)


def register(worker: PgQueuer) -> None:
    """Register the handlers; those that wait are coroutines."""
    set_up_django()

    @worker.entrypoint("nothing")
    async def nothing(job: Job) -> None:
        handlers.nothing()

    @worker.entrypoint("stamp")
    async def stamp(job: Job) -> None:
        handlers.stamp(**json.loads(job.payload or b"{}"))

    @worker.entrypoint("sleep")
    async def sleep(job: Job) -> None:
        await handlers.asleep()

    @worker.entrypoint("asleep")
    async def asleep(job: Job) -> None:
        await handlers.asleep()

    @worker.entrypoint("write")
    async def write(job: Job) -> None:
        await handlers.awrite()

    @worker.entrypoint("burn")
    async def burn(job: Job) -> None:
        handlers.burn()


def make_system() -> PgQueuerSystem:
    return PgQueuerSystem()


if __name__ == "__main__":
    batch, *limit = map(int, sys.argv[1:])
    uvloop.run(run_worker(batch, limit[0] if limit else None))
