"""Raw COPY into our own table: the limit of enqueue_many()."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime

from django.db import connection

from benchmarks.system import timed
from benchmarks.systems.jobqueue import JobQueue

COPY = """
    COPY jobqueue_job (id, job_type, queue, payload, status, rank, run_at, created_at)
    FROM STDIN
"""


class CopyRows(JobQueue):
    def enqueue_bulk(self, handler: str, count: int) -> float:
        return timed(lambda: copy_rows(handler, count))


def copy_rows(handler: str, count: int) -> None:
    now, rank = datetime.now(UTC), time.time_ns() // 1000
    name = f"benchmarks.{handler}"
    with connection.cursor() as cursor, cursor.copy(COPY) as copy:
        for _ in range(count):
            row = (uuid.uuid4(), name, "default", "{}", "pending", rank, now, now)
            copy.write_row(row)


def make_system() -> CopyRows:
    return CopyRows()
