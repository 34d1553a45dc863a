"""Dramatiq with redis: processes with threads.

dramatiq benchmarks.systems.dramatiq    # the worker
"""

from __future__ import annotations

import os
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks import handlers
from benchmarks.system import System, Unsupported, redis_url, script
from benchmarks.systems.django_project import migrate, set_up_django

THREADS = 8

broker = RedisBroker(url=redis_url())
dramatiq.set_broker(broker)
ACTORS = {
    name: dramatiq.actor(call, actor_name=name) for name, call in handlers.SYNC.items()
}

if os.environ.get("BENCH_WORKER"):
    set_up_django()


class DramatiqSystem(System):
    def prepare(self) -> None:
        set_up_django()
        migrate()

    def clear(self) -> None:
        broker.client.flushdb()

    def has_work(self) -> bool:
        # A message stays in this hash until it is acknowledged.
        return bool(broker.client.hlen("dramatiq:default.msgs"))

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        if handler not in ACTORS:
            raise Unsupported("measured with threads only")
        ACTORS[handler].send(**payload)

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        flags = ["--processes", str(processes), "--skip-logging"]
        flags += ["--threads", str(concurrency or THREADS)]
        return [script("dramatiq", "benchmarks.systems.dramatiq", *flags)]

    def worker_environment(
        self, processes: int, concurrency: int | None, handler: str
    ) -> dict[str, str]:
        return {"BENCH_WORKER": "1"}


def make_system() -> DramatiqSystem:
    return DramatiqSystem()
