"""The upper limit: a bare psycopg loop that only claims and finishes rows.

No retries, no heartbeat, no fence, no attempt history: what PostgreSQL and psycopg
can do on this machine, in one process and on one connection.

    python -m benchmarks.systems.bare    # the worker
"""

from __future__ import annotations

import time
from typing import Any

import psycopg

from benchmarks.handlers import SYNC
from benchmarks.system import System, Unsupported, database_url, python, timed

BATCH = 200

CREATE = """
    CREATE TABLE bare_job (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        job_type text NOT NULL DEFAULT 'nothing',
        payload jsonb NOT NULL DEFAULT '{}',
        status text NOT NULL DEFAULT 'pending',
        created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        finished_at timestamptz
    );
    CREATE INDEX bare_job_claim ON bare_job (created_at, id) WHERE status = 'pending';
"""
INSERT = "INSERT INTO bare_job (job_type) VALUES (%(handler)s)"
COPY = "COPY bare_job (job_type) FROM STDIN"
FILL = """
    INSERT INTO bare_job (status, created_at)
    SELECT 'succeeded', now() - interval '1 hour'
    FROM generate_series(1, %(finished)s)
    UNION ALL
    SELECT 'scheduled', now() + interval '1 year'
    FROM generate_series(1, %(future)s)
"""
HAS_WORK = """
    SELECT EXISTS (
        SELECT FROM bare_job WHERE status = 'pending'
    )
"""
CLAIM = """
    WITH chosen AS MATERIALIZED (
        SELECT id
        FROM bare_job
        WHERE status = 'pending'
        ORDER BY created_at, id
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    )
    UPDATE bare_job AS job
    SET status = 'running'
    FROM chosen
    WHERE job.id = chosen.id
    RETURNING job.id, job.job_type, job.payload
"""
FINISH = """
    UPDATE bare_job
    SET status = 'succeeded', finished_at = clock_timestamp()
    WHERE id = ANY(%(ids)s)
"""


class BareLoop(System):
    def __init__(self) -> None:
        self.connection = psycopg.connect(database_url(), autocommit=True)

    def prepare(self) -> None:
        self.connection.execute(CREATE)

    def clear(self) -> None:
        self.connection.execute("TRUNCATE bare_job")

    def has_work(self) -> bool:
        [[found]] = self.connection.execute(HAS_WORK).fetchall()
        return bool(found)

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        self.connection.execute(INSERT, {"handler": handler})

    def enqueue_together(self, handler: str, count: int) -> float:
        def insert() -> None:
            with self.connection.transaction():
                self.enqueue_each(handler, count)

        return timed(insert)

    def enqueue_bulk(self, handler: str, count: int) -> float:
        def copy_rows() -> None:
            with self.connection.cursor() as cursor, cursor.copy(COPY) as copy:
                for _ in range(count):
                    copy.write_row((handler,))

        return timed(copy_rows)

    def fill(self, finished: int, future: int) -> None:
        self.connection.execute(FILL, {"finished": finished, "future": future})

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        if concurrency:
            raise Unsupported("runs one job at a time")
        return [python("-m", "benchmarks.systems.bare")] * processes

    def close(self) -> None:
        self.connection.close()


def run_loop() -> None:
    """Claim and finish until killed; poll an empty queue every 10 ms."""
    with psycopg.connect(database_url(), autocommit=True) as connection:
        while True:
            rows = connection.execute(CLAIM, {"limit": BATCH}).fetchall()
            for _id, job_type, payload in rows:
                SYNC[job_type](**payload)
            if rows:
                connection.execute(FINISH, {"ids": [row[0] for row in rows]})
            else:
                time.sleep(0.01)


def make_system() -> BareLoop:
    return BareLoop()


if __name__ == "__main__":
    run_loop()
