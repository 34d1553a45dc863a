"""A trigger that compares every accepted result and progress with the job's token.

It sees each write at the moment it happens, also one that is overwritten at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

# The handlers of tests/testapp/ledger_jobs.py write their fence into both.
BEGIN = """
    CREATE TABLE faults_late (
        job_id uuid NOT NULL,
        what text NOT NULL,
        fence text NOT NULL,
        token bigint NOT NULL
    );
    CREATE FUNCTION faults_note_late() RETURNS trigger AS $$
    BEGIN
        IF NEW.progress IS DISTINCT FROM OLD.progress
            AND NEW.progress ->> 'note' <> NEW.lease_token::text
        THEN
            INSERT INTO faults_late
            VALUES (NEW.id, 'progress', NEW.progress ->> 'note', NEW.lease_token);
        END IF;
        IF NEW.result IS DISTINCT FROM OLD.result
            AND NEW.result #>> '{}' <> NEW.lease_token::text
        THEN
            INSERT INTO faults_late
            VALUES (NEW.id, 'end', NEW.result #>> '{}', NEW.lease_token);
        END IF;
        RETURN NULL;
    END
    $$ LANGUAGE plpgsql;
    CREATE TRIGGER faults_audit
    AFTER UPDATE ON jobqueue_job
    FOR EACH ROW EXECUTE FUNCTION faults_note_late()
"""

END = """
    DROP TRIGGER faults_audit ON jobqueue_job;
    DROP FUNCTION faults_note_late();
    DROP TABLE faults_late
"""

READ = """
    SELECT job_id, what, fence, token
    FROM faults_late
"""


@contextmanager
def audit() -> Iterator[list[str]]:
    """Yield a list; after the block it holds the late writes that were accepted.

    PostgreSQL only: on other databases no job is rescued from a living process.
    """
    accepted: list[str] = []
    if connection.vendor != "postgresql":
        yield accepted
        return
    with connection.cursor() as cursor:
        cursor.execute(BEGIN)
    try:
        yield accepted
        with connection.cursor() as cursor:
            cursor.execute(READ)
            for job_id, what, fence, token in cursor.fetchall():
                accepted.append(f"{job_id}: {what} of the claim {fence} under {token}")
    finally:
        with connection.cursor() as cursor:
            cursor.execute(END)
