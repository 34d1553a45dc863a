"""What the database says a worker owns."""

from __future__ import annotations

import json
from uuid import uuid4

from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.options import Options
from django_jobqueue.outcomes import Cancelled
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from django_jobqueue.storage.ownership import make_claim, read_owned_jobs
from tests.factories import make_job


def test_a_worker_owns_what_runs_under_its_id(database: Database) -> None:
    worker = uuid4()
    mine = make_job(running=True, worker_id=worker, attempts=2, lease_token=5)
    asked = make_job(running=True, worker_id=worker)
    make_job(running=True)
    make_job()
    Job.objects.filter(pk=asked.pk).update(cancel_requested_at=timezone.now())

    owned = read_owned_jobs(database, worker)

    assert [job.id for job in owned] == [mine.pk, asked.pk]
    assert (owned[0].lease_token, owned[0].attempt) == (5, 2)
    assert (owned[0].job_type, owned[0].queue) == ("testapp.add", "default")
    assert [job.is_cancel_requested for job in owned] == [False, True]


def test_an_owned_job_says_what_it_takes_to_judge_its_end(database: Database) -> None:
    worker = uuid4()
    job = make_job(
        running=True,
        worker_id=worker,
        crashes=2,
        given_back=3,
        max_attempts=4,
        backoff={"linear": [2.0, 9.0]},
    )
    make_job(running=True, worker_id=worker)

    told, plain = read_owned_jobs(database, worker)

    assert (told.crashes, told.given_back, told.max_attempts) == (2, 3, 4)
    assert told.backoff is not None
    assert json.loads(told.backoff) == {"linear": [2.0, 9.0]}
    assert told.claimed_at == job.claimed_at
    assert (plain.crashes, plain.given_back) == (0, 0)
    assert (plain.max_attempts, plain.backoff) == (None, None)


def test_a_claim_made_of_an_owned_job_ends_its_attempt(
    database: Database, options: Options
) -> None:
    worker = uuid4()
    job = make_job(running=True, worker_id=worker, max_attempts=4, given_back=1)
    [owned] = read_owned_jobs(database, worker)

    claim = make_claim(owned)
    ending = Ending(claim=claim, outcome=Cancelled("enough"))
    report = finish_attempts(database, [ending], worker_id=worker, options=options)

    job.refresh_from_db()
    assert report.done == [ending]
    assert (claim.attempt, claim.max_attempts, claim.given_back) == (1, 4, 1)
    assert (job.status, job.error) == ("cancelled", "enough")
