"""Raw COPY and raw INSERT into our table: the upper limit of our enqueue."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from typing import Any

import psycopg
from django.db import connection

from benchmarks.system import database_url, timed
from benchmarks.systems.jobqueue import JobQueue

COPY = """
    COPY jobqueue_job (id, job_type, queue, payload, status, rank, run_at, created_at)
    FROM STDIN
"""


INSERT = """
    INSERT INTO jobqueue_job (id, job_type, queue, payload, status, rank)
    VALUES (%(id)s, %(name)s, 'default', '{}', 'pending', %(rank)s)
"""


class RawRows(JobQueue):
    def __init__(self) -> None:
        super().__init__()
        self.connection = psycopg.connect(database_url(), autocommit=True)

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        name, rank = f"benchmarks.{handler}", time.time_ns() // 1000
        values = {"id": uuid.uuid4(), "name": name, "rank": rank}
        self.connection.execute(INSERT, values)

    def enqueue_together(self, handler: str, count: int) -> float:
        def insert() -> None:
            with self.connection.transaction():
                self.enqueue_each(handler, count)

        return timed(insert)

    def close(self) -> None:
        self.connection.close()
        super().close()

    def enqueue_bulk(self, handler: str, count: int) -> float:
        return timed(lambda: copy_rows(handler, count))


def copy_rows(handler: str, count: int) -> None:
    now, rank = datetime.now(UTC), time.time_ns() // 1000
    name = f"benchmarks.{handler}"
    with connection.cursor() as cursor, cursor.copy(COPY) as copy:
        for _ in range(count):
            row = (uuid.uuid4(), name, "default", "{}", "pending", rank, now, now)
            copy.write_row(row)


def make_system() -> RawRows:
    return RawRows()
