"""A worker does not keep the plans that it made while the table was empty.

Autovacuum may take a minute to notice that a queue has filled. Until then a generic
plan does not change.
"""

from __future__ import annotations

import time
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import Succeeded
from django_jobqueue.storage.database import REPLAN_SECONDS, Database
from django_jobqueue.storage.endings import Ending
from django_jobqueue.storage.ownership import OwnedJob, make_claim
from django_jobqueue.worker.running.connections import close_database, open_database
from tests.factories import make_job

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

FILL = """
    INSERT INTO jobqueue_job (id, job_type, status, finished_at)
    SELECT gen_random_uuid(), 'testapp.add', 'succeeded', now()
    FROM generate_series(1, 50000)
"""


def test_finish_uses_the_primary_key_soon_after_the_table_has_grown() -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobqueue_job")
        cursor.execute("ALTER TABLE jobqueue_job SET (autovacuum_enabled = off)")
        cursor.execute("ANALYZE jobqueue_job")
    db = open_database("default", name="plans")
    try:
        plan_on_the_empty_table(db)
        with connection.cursor() as cursor:
            cursor.execute(FILL)
        by_old_plan = count_entries_read(db, is_late=False)
        by_new_plan = count_entries_read(db, is_late=True)
    finally:
        close_database(db)
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE jobqueue_job RESET (autovacuum_enabled)")
    assert by_new_plan < 1_000 < 50_000 <= by_old_plan


def plan_on_the_empty_table(db: Database) -> None:
    job = OwnedJob(
        id=uuid4(),
        lease_token=1,
        attempt=1,
        job_type="testapp.add",
        queue="default",
        is_cancel_requested=False,
        crashes=0,
        lost=0,
        given_back=0,
        max_attempts=None,
        backoff=None,
        claimed_at=timezone.now(),
    )
    refused = Ending(claim=make_claim(job), outcome=Succeeded(), started=0.0)
    report = finish_attempts(db, [refused], worker_id=uuid4(), options=get_options())
    assert report.lost


def count_entries_read(db: Database, *, is_late: bool) -> int:
    """Finish one job; return how many primary key entries were read.

    `is_late`: the plans have reached their maximum age.
    """
    worker_id = uuid4()
    make_job(status="pending")
    db.plans.since = time.monotonic() + 60
    [claim] = claim_jobs(db, {"default": 1}, worker_id=worker_id)
    before = read_entries(db)
    if is_late:
        db.plans.since = time.monotonic() - REPLAN_SECONDS - 0.1
    ending = Ending(claim=claim, outcome=Succeeded(), started=time.monotonic())
    report = finish_attempts(db, [ending], worker_id=worker_id, options=get_options())
    assert report.done
    return read_entries(db) - before


def read_entries(db: Database) -> int:
    assert db.own is not None
    db.own.execute("SELECT pg_stat_force_next_flush()")
    cursor = db.own.execute(
        "SELECT idx_tup_read FROM pg_stat_user_indexes"
        " WHERE indexrelname = 'jobqueue_job_pkey'"
    )
    return int(cursor.fetchall()[0][0])
