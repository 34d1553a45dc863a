"""A worker compares what it owns in the database with what it holds."""

from __future__ import annotations

import pytest
from django.db import connections
from django.utils import timezone

from django_jobqueue import Job, JobSpec
from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.lifecycle.database import Database
from django_jobqueue.models import Attempt
from django_jobqueue.options import get_options
from django_jobqueue.worker.worker import Worker

pytestmark = pytest.mark.django_db(transaction=True)

DB = Database(alias="default")


@pytest.fixture
def worker() -> Worker:
    """One that has not started anything, and starts nothing."""
    worker = Worker(get_options())
    worker.slots.close()
    return worker


def test_what_is_owned_but_not_held_is_given_back_with_its_attempt(
    worker: Worker,
) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(2))
    # A claim of this worker whose reply was lost.
    claim_jobs(DB, {"default": 1}, worker_id=worker.id)

    worker.claimer._reconcile(DB)
    worker.finisher.step(DB)

    states = list(Job.objects.values_list("status", "attempts", "worker_id"))
    assert states == [("pending", 0, None)] * 2
    assert Attempt.objects.get().outcome == "released"
    connections.close_all()


def test_what_is_held_but_taken_away_or_asked_to_stop_is_told(worker: Worker) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(3))
    claims = claim_jobs(DB, {"default": 3}, worker_id=worker.id)
    taken, asked, left = worker.held.add(claims)
    Job.objects.filter(pk=taken.claim.id).update(lease_token=2)
    moment = timezone.now()
    Job.objects.filter(pk=asked.claim.id).update(cancel_requested_at=moment)

    worker.claimer._reconcile(DB)

    told = [(held.flags.lost, held.flags.cancelled) for held in (taken, asked, left)]
    assert told == [(True, True), (False, True), (False, False)]
    assert Job.objects.counts()["running"] == 3
    connections.close_all()
