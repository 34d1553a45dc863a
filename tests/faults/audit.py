"""An audit inside the database: every end and every progress that is accepted is held
against the token of the job at that moment, however soon it is written over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection

# The handlers of tests/testapp/ledgered.py put their fence into both.
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
    """Give a list that holds, after the block, the late writes that were accepted.

    On PostgreSQL; elsewhere nobody takes a job from a process that lives.
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
