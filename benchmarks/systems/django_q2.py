"""Django-Q2 with its ORM broker: processes that run one task at a time."""

from __future__ import annotations

from typing import Any

from benchmarks.handlers import SYNC
from benchmarks.system import Unsupported, timed
from benchmarks.systems.django_project import DjangoSystem, execute, manage

FILL = """
    WITH finished AS (
        INSERT INTO django_q_task (
            id,
            name,
            func,
            started,
            stopped,
            success,
            attempt_count
        )
        SELECT
            md5(number::text),
            'filled',
            'benchmarks.handlers.nothing',
            now(),
            now(),
            true,
            1
        FROM generate_series(1, %(finished)s) AS number
    )
    INSERT INTO django_q_ormq (key, payload, lock)
    SELECT 'bench', '', now() + interval '1 year'
    FROM generate_series(1, %(future)s)
"""
# A running job is locked for a short time, a future job for a year.
HAS_WORK = """
    SELECT EXISTS (
        SELECT FROM django_q_ormq WHERE lock < now() + interval '1 day'
    )
"""


class DjangoQ2(DjangoSystem):
    def clear(self) -> None:
        execute("TRUNCATE django_q_ormq, django_q_task, benchmarks_written")

    def has_work(self) -> bool:
        return bool(execute(HAS_WORK))

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        from django_q.tasks import async_task

        if handler not in SYNC:
            raise Unsupported("no async tasks")
        async_task(f"benchmarks.handlers.{handler}", **payload)

    def enqueue_together(self, handler: str, count: int) -> float:
        from django.db import transaction

        def enqueue() -> None:
            with transaction.atomic():
                self.enqueue_each(handler, count)

        return timed(enqueue)

    def fill(self, finished: int, future: int) -> None:
        execute(FILL, {"finished": finished, "future": future})

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        return [manage("qcluster")]

    def worker_environment(
        self, processes: int, concurrency: int | None, handler: str
    ) -> dict[str, str]:
        # Its only concurrency is processes: one for each job that runs at a time.
        return {"BENCH_PROCESSES": str(concurrency or processes)}


def make_system() -> DjangoQ2:
    return DjangoQ2()
