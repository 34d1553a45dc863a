"""Time is the database's: a process whose clock is wrong moves no job early.

On SQLite there is no other clock than the process's.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
import time_machine
from django.utils import timezone

from django_jobqueue import DeadJob, Job, JobSpec
from django_jobqueue.lifecycle.enqueue import enqueue_job
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.lifecycle.promote import promote_jobs
from django_jobqueue.lifecycle.prune import prune_jobs
from django_jobqueue.lifecycle.requeue import requeue_jobs
from django_jobqueue.lifecycle.rescue import forget_silent_workers, rescue_jobs
from django_jobqueue.models import Attempt, WorkerHeartbeat
from django_jobqueue.options import Options
from django_jobqueue.outcomes import Died, Outcome, Retried, Succeeded
from django_jobqueue.storage.backlog import find_next_due, find_work_left
from django_jobqueue.storage.database import Database, make_rank
from django_jobqueue.storage.endings import Ending
from django_jobqueue.storage.worker_rows import beat
from tests.factories import make_dead_job, make_job, make_worker
from tests.lifecycle.claiming import WORKER, claim_one
from tests.lifecycle.test_finish import DIED, RETRIED
from tests.storage.test_worker_rows import PULSE, TTL, make_identity

pytestmark = pytest.mark.postgresql

HOUR = timedelta(hours=1)
YEAR = timedelta(days=365)


@pytest.fixture
def moment(database: Database) -> Iterator[datetime]:
    """The database's time, while this process believes that a year has passed."""
    found = database.read_clock(None)
    with time_machine.travel(found + YEAR):
        assert timezone.now() - found > YEAR - HOUR
        yield found


def is_near(value: datetime | None, moment: datetime) -> bool:
    return value is not None and abs(value - moment) < HOUR


def test_a_job_is_enqueued_at_the_databases_time(
    database: Database, moment: datetime
) -> None:
    job = enqueue_job(JobSpec("testapp.nothing", delay=3 * HOUR), db=database)

    assert job.status == "scheduled"
    assert is_near(job.created_at, moment)
    assert is_near(job.run_at, moment + 3 * HOUR)


def test_a_job_without_options_bears_the_databases_time(
    database: Database, moment: datetime, options: Options
) -> None:
    job = enqueue_job(JobSpec("testapp.nothing"), db=database)

    assert job.status == "pending"
    assert is_near(job.created_at, moment)
    assert is_near(job.run_at, moment)
    stored = Job.objects.get()
    assert (stored.run_at, stored.created_at) == (job.run_at, job.created_at)
    rank = make_rank(job.run_at, job.run_at, priority=0, aging=options.aging)
    assert stored.rank == job.rank == rank


def test_a_job_is_promoted_when_the_database_says_it_is_due(
    database: Database, moment: datetime, options: Options
) -> None:
    make_job(scheduled=True, run_at=moment + 3 * HOUR)
    seconds = find_next_due(database).seconds

    assert promote_jobs(database, limit=10, aging=options.aging) == []
    assert seconds is not None
    assert 7_200 < seconds < 10_800 + 3_600
    assert not find_work_left(database, None, exclude=[]).has_any

    Job.objects.update(run_at=moment - timedelta(seconds=1))
    [promoted] = promote_jobs(database, limit=10, aging=options.aging)
    assert abs(promoted.rank / 1_000_000 - moment.timestamp()) < 3_600


def test_a_claim_bears_the_databases_time(database: Database, moment: datetime) -> None:
    job = make_job()

    claimed = claim_one(database)

    job.refresh_from_db()
    assert is_near(claimed.claimed_at, moment)
    assert is_near(job.claimed_at, moment)


@pytest.mark.parametrize("outcome", [Succeeded(), RETRIED, DIED])
def test_an_end_bears_the_databases_time(
    database: Database, moment: datetime, options: Options, outcome: Outcome
) -> None:
    job = make_job()
    ending = Ending(claim=claim_one(database), outcome=outcome)

    finish_attempts(database, [ending], worker_id=WORKER, options=options)

    match outcome:
        case Died():
            assert is_near(DeadJob.objects.get().died_at, moment)
        case Retried():
            job.refresh_from_db()
            assert is_near(job.run_at, moment)
            assert is_near(Attempt.objects.get().finished_at, moment)
        case _:
            job.refresh_from_db()
            assert is_near(job.finished_at, moment)


def test_a_beat_bears_the_databases_time(database: Database, moment: datetime) -> None:
    beat(database, make_identity(), PULSE, ttl=TTL)

    row = WorkerHeartbeat.objects.get()
    assert is_near(row.last_seen_at, moment)
    assert is_near(row.beating_since, moment)


def test_a_worker_is_silent_when_the_database_says_so(
    database: Database, moment: datetime, options: Options
) -> None:
    worker = make_worker(last_seen_at=moment)
    make_job(running=True, worker_id=worker.pk)

    assert rescue_jobs(database, options=options).jobs == []
    assert forget_silent_workers(database) == 0


def test_a_job_is_pruned_when_the_database_says_so(
    database: Database, moment: datetime
) -> None:
    make_job(succeeded=True, finished_at=moment, prune_at=moment + 3 * HOUR)

    assert prune_jobs(database) == 0


def test_cancel_requeue_and_reschedule_bear_the_databases_time(
    database: Database, moment: datetime
) -> None:
    cancelled, moved = make_job(), make_job()
    make_dead_job()
    cancelled.cancel()
    moved.reschedule(delay=3 * HOUR)
    requeue_jobs(DeadJob.objects.all(), db=database)

    assert is_near(cancelled.finished_at, moment)
    assert is_near(moved.run_at, moment + 3 * HOUR)
    assert Job.objects.filter(status="pending", run_at__lt=moment + HOUR).exists()
