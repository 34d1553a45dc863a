"""Promote: scheduled → pending, when due."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from django_jobqueue.lifecycle.promote import promote_jobs
from django_jobqueue.options import Options
from django_jobqueue.storage.database import Database
from tests.factories import make_job


def test_promote_makes_a_due_job_pending_with_its_rank(
    database: Database, options: Options
) -> None:
    now = timezone.now()
    job = make_job(scheduled=True, run_at=now - timedelta(seconds=5), priority=2)

    [promoted] = promote_jobs(database, limit=10, aging=options.aging, now=now)

    job.refresh_from_db()
    hour = 3_600_000_000
    assert promoted == (job.pk, job.job_type, "default", job.rank)
    assert job.status == "pending"
    assert abs(job.rank - (now.timestamp() * 1_000_000 - 2 * hour)) < 10


def test_promote_leaves_a_job_whose_time_has_not_come(
    database: Database, options: Options
) -> None:
    job = make_job(scheduled=True)

    assert promote_jobs(database, limit=10, aging=options.aging) == []

    job.refresh_from_db()
    assert job.status == "scheduled"


def test_promote_takes_the_longest_due_first_and_no_more_than_its_limit(
    database: Database, options: Options
) -> None:
    now = timezone.now()
    late = make_job(scheduled=True, run_at=now - timedelta(seconds=1))
    latest = make_job(scheduled=True, run_at=now - timedelta(seconds=2))

    assert len(promote_jobs(database, limit=1, aging=options.aging, now=now)) == 1

    late.refresh_from_db()
    latest.refresh_from_db()
    assert (late.status, latest.status) == ("scheduled", "pending")


def test_promote_touches_nothing_but_scheduled_jobs(
    database: Database, options: Options
) -> None:
    make_job(running=True)
    make_job(succeeded=True)

    assert promote_jobs(database, limit=10, aging=options.aging) == []
