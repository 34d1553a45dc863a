"""The limit: a bare psycopg loop that claims and finishes rows, and nothing else.

No retries, no heartbeat, no fence, no history of attempts: what PostgreSQL and psycopg
can do on this machine, in one process and on one connection.
"""

from __future__ import annotations

import time

import psycopg

BATCH = 200

CREATE = """
    CREATE TABLE bare_job (
        id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
        job_type text NOT NULL DEFAULT 'nothing',
        payload jsonb NOT NULL DEFAULT '{}',
        status text NOT NULL DEFAULT 'pending',
        created_at timestamptz NOT NULL DEFAULT now(),
        finished_at timestamptz
    );
    CREATE INDEX bare_job_claim ON bare_job (created_at, id) WHERE status = 'pending';
"""
FILL = """
    INSERT INTO bare_job (created_at)
    SELECT now() + number * interval '1 microsecond'
    FROM generate_series(1, %(count)s) AS number
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


def run_bare_loop(url: str, *, count: int) -> float:
    """Fill a table, drain it, and return the jobs done in a second."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS bare_job")
        connection.execute(CREATE)
        connection.execute(FILL, {"count": count})
        connection.execute("VACUUM ANALYZE bare_job")
        started = time.perf_counter()
        while rows := connection.execute(CLAIM, {"limit": BATCH}).fetchall():
            connection.execute(FINISH, {"ids": [row[0] for row in rows]})
        return count / (time.perf_counter() - started)
