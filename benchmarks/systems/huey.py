"""Huey with redis, or with SQLite if DATABASE_URL is an SQLite address.

huey_consumer benchmarks.systems.huey.huey    # the worker
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from huey import RedisHuey, SqliteHuey

from benchmarks import handlers
from benchmarks.system import System, Unsupported, database_url, redis_url, script
from benchmarks.systems.django_project import migrate, set_up_django

IS_SQLITE = database_url().startswith("sqlite")
# On SQLite, more threads only wait for the lock on the file.
THREADS = 1 if IS_SQLITE else 8

if IS_SQLITE:
    huey = SqliteHuey(filename=urlsplit(database_url()).path + "-huey", results=False)
else:
    huey = RedisHuey(url=redis_url(), results=False)
TASKS = {
    name: huey.task(name=name)(call)  # type: ignore[no-untyped-call]
    for name, call in handlers.SYNC.items()
}

if os.environ.get("BENCH_WORKER"):
    set_up_django()


class HueySystem(System):
    def prepare(self) -> None:
        set_up_django()
        migrate()

    def clear(self) -> None:
        huey.storage.flush_all()

    def has_work(self) -> bool:
        # The queue does not know the jobs that a worker has taken.
        return bool(huey.pending_count())

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        if handler not in TASKS:
            raise Unsupported("no async tasks")
        TASKS[handler](**payload)

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        if concurrency or processes == 1:
            flags = ["-k", "thread", "-w", str(concurrency or THREADS)]
        else:
            flags = ["-k", "process", "-w", str(processes)]
        flags += ["--no-periodic", "--quiet", "-g", "TERM"]
        return [script("huey_consumer", "benchmarks.systems.huey.huey", *flags)]

    def worker_environment(
        self, processes: int, concurrency: int | None, handler: str
    ) -> dict[str, str]:
        return {"BENCH_WORKER": "1"}


def make_system() -> HueySystem:
    return HueySystem()
