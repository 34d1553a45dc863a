"""A worker compares the jobs it owns in the database with those in flight."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from django.db import connections
from django.utils import timezone

from django_jobqueue import Job, JobSpec
from django_jobqueue.exceptions import JobCancelled
from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.models import Attempt
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import Succeeded
from django_jobqueue.registry import get_handler
from django_jobqueue.signals import job_given_back, job_succeeded, lease_lost
from django_jobqueue.storage import ownership as ownership_module
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from django_jobqueue.storage.ownership import read_owned_jobs
from django_jobqueue.worker.claiming import ownership_check as check_module
from django_jobqueue.worker.running.attempt import _judge_end, run_attempt
from django_jobqueue.worker.running.in_flight import RELEASED, InFlightJob
from django_jobqueue.worker.worker import Worker

pytestmark = pytest.mark.django_db(transaction=True)

DB = Database(alias="default")


@pytest.fixture
def worker() -> Worker:
    """A worker that is not started and starts no job."""
    worker = Worker(get_options())
    worker.slots.close()
    return worker


def test_a_job_owned_but_not_in_flight_is_released_with_its_attempt(
    worker: Worker,
) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(2))
    # A claim of this worker whose reply was lost.
    claim_jobs(DB, {"default": 1}, worker_id=worker.id)

    worker.claimer._ownership.run(DB)
    worker.finisher.step(DB)

    states = list(Job.objects.values_list("status", "attempts", "worker_id"))
    assert states == [("pending", 0, None)] * 2
    assert Attempt.objects.get().outcome == "released"
    connections.close_all()


def test_a_job_in_flight_that_is_lost_or_to_be_cancelled_is_flagged(
    worker: Worker,
) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(3))
    claims = claim_jobs(DB, {"default": 3}, worker_id=worker.id)
    taken, asked, left = worker.in_flight.add(claims)
    Job.objects.filter(pk=taken.claim.id).update(lease_token=2)
    moment = timezone.now()
    Job.objects.filter(pk=asked.claim.id).update(cancel_requested_at=moment)

    worker.claimer._ownership.run(DB)

    flags = [(job.flags.lost, job.flags.cancelled) for job in (taken, asked, left)]
    assert flags == [(True, True), (False, True), (False, False)]
    assert Job.objects.counts()["running"] == 3
    connections.close_all()


def test_a_job_that_ends_during_the_check_is_neither_released_nor_lost(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is written between listing the jobs in flight and reading the rows, or
    after the rows were read."""
    reported: list[Any] = []
    lost: list[Any] = []

    def note(**values: Any) -> None:
        reported.append(values["job_id"])

    def note_lost(**values: Any) -> None:
        lost.append(values["job_id"])

    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(4))
    claims = claim_jobs(DB, {"default": 4}, worker_id=worker.id)
    early, late, unwritten, left = worker.in_flight.add(claims)

    def read(db: Database, worker_id: UUID) -> list[Any]:
        finish(worker, early)
        rows = read_owned_jobs(db, worker_id)
        finish(worker, late)
        worker.finisher.put(Ending(claim=unwritten.claim, outcome=Succeeded()))
        return rows

    monkeypatch.setattr(check_module, "read_owned_jobs", read)
    job_succeeded.connect(note)
    lease_lost.connect(note_lost)
    try:
        worker.claimer._ownership.run(DB)
        worker.finisher.step(DB)
    finally:
        job_succeeded.disconnect(note)
        lease_lost.disconnect(note_lost)

    ended = [early, late, unwritten]
    assert reported == [job.claim.id for job in ended]
    assert lost == []
    assert not any(job.flags.lost for job in [*ended, left])
    assert Job.objects.counts()["succeeded"] == 3
    assert [job.claim.id for job in worker.in_flight.list()] == [left.claim.id]
    connections.close_all()


def finish(worker: Worker, job: InFlightJob) -> None:
    worker.finisher.put(Ending(claim=job.claim, outcome=Succeeded()))
    worker.finisher.step(DB)


def test_a_claim_with_a_lost_reply_is_released_once_however_often_it_is_found(
    worker: Worker,
) -> None:
    reported: list[Any] = []

    def note(**values: Any) -> None:
        reported.append(values["job_id"])

    Job.objects.enqueue_many([JobSpec("testapp.nothing")])
    claim_jobs(DB, {"default": 1}, worker_id=worker.id)
    job_given_back.connect(note)
    try:
        worker.claimer._ownership.run(DB)
        worker.claimer._ownership.run(DB)
        worker.finisher.step(DB)
    finally:
        job_given_back.disconnect(note)

    assert len(reported) == 1
    assert len(worker.in_flight) == 0
    connections.close_all()


def test_jobs_beyond_one_page_are_not_taken_for_lost(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership_module, "PAGE_JOBS", 2)
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(5))
    claims = claim_jobs(DB, {"default": 5}, worker_id=worker.id)
    in_flight = worker.in_flight.add(claims)

    worker.claimer._ownership.run(DB)

    assert not any(job.flags.lost for job in in_flight)
    assert len(read_owned_jobs(DB, worker.id)) == 5
    connections.close_all()


@pytest.mark.parametrize("is_started", [False, True])
def test_an_attempt_taken_for_lost_is_released_and_not_cancelled(
    worker: Worker, is_started: bool
) -> None:
    Job.objects.enqueue_many([JobSpec("testapp.nothing")])
    [job] = worker.in_flight.add(claim_jobs(DB, {"default": 1}, worker_id=worker.id))
    job.flags.lost = job.flags.cancelled = True
    env = worker.slots._env
    if is_started:
        handler = get_handler("testapp.nothing")
        outcome = _judge_end(job, JobCancelled(), handler, env)
    else:
        outcome = run_attempt(job, env).outcome

    assert outcome == RELEASED
    connections.close_all()


def test_an_idle_worker_checks_ownership_once_a_minute(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim whose reply was lost may commit after the check that follows the
    reconnect, and then no job is in flight."""
    Job.objects.enqueue_many([JobSpec("testapp.nothing")])
    worker.claimer._ownership.run(DB)
    claim_jobs(DB, {"default": 1}, worker_id=worker.id)

    worker.claimer.request_ownership_check()
    assert not worker.claimer._ownership.is_requested

    monkeypatch.setattr(check_module, "IDLE_OWNERSHIP_CHECK_SECONDS", -1.0)
    worker.claimer.request_ownership_check()
    assert worker.claimer._ownership.is_requested
    connections.close_all()
