"""What the database says a worker owns."""

from __future__ import annotations

from uuid import uuid4

from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.lifecycle.database import Database
from django_jobqueue.lifecycle.reconcile import OwnedJob, read_owned_jobs
from tests.factories import make_job


def test_a_worker_owns_what_runs_under_its_id(database: Database) -> None:
    worker = uuid4()
    mine = make_job(running=True, worker_id=worker, attempts=2, lease_token=5)
    asked = make_job(running=True, worker_id=worker)
    make_job(running=True)
    make_job()
    Job.objects.filter(pk=asked.pk).update(cancel_requested_at=timezone.now())

    assert read_owned_jobs(database, worker) == [
        OwnedJob(mine.pk, 5, 2, "testapp.add", "default", False),
        OwnedJob(asked.pk, 1, 1, "testapp.add", "default", True),
    ]
