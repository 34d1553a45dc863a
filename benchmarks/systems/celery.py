"""Celery with redis: a prefork pool, or a thread pool for jobs that only wait.

celery -A benchmarks.systems.celery worker    # the worker
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from redis import Redis

from benchmarks import handlers
from benchmarks.system import System, Unsupported, redis_url, script
from benchmarks.systems.django_project import migrate, set_up_django

app = Celery("bench", broker=redis_url())
app.conf.update(
    task_ignore_result=True,
    # As the documentation advises for many short tasks.
    worker_prefetch_multiplier=128,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    # By default it reconnects to the database for each task.
    CELERY_DB_REUSE_MAX=10_000,
)
TASKS = {name: app.task(call, name=name) for name, call in handlers.SYNC.items()}

if os.environ.get("BENCH_WORKER"):
    set_up_django()


class CelerySystem(System):
    def __init__(self) -> None:
        self.redis = Redis.from_url(redis_url())

    def prepare(self) -> None:
        set_up_django()
        migrate()

    def clear(self) -> None:
        self.redis.flushdb()

    def has_work(self) -> bool:
        return bool(self.redis.llen("celery") or self.redis.hlen("unacked"))

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        if handler not in TASKS:
            raise Unsupported("no async tasks")
        TASKS[handler].apply_async(kwargs=payload)

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        pool = "threads" if concurrency else "prefork"
        flags = ["--pool", pool, "--concurrency", str(concurrency or processes)]
        flags += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        flags += ["--loglevel", "WARNING"]
        return [script("celery", "-A", "benchmarks.systems.celery", "worker", *flags)]

    def worker_environment(
        self, processes: int, concurrency: int | None, handler: str
    ) -> dict[str, str]:
        return {"BENCH_WORKER": "1"}


def make_system() -> CelerySystem:
    return CelerySystem()
