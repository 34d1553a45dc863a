"""A worker whose own heartbeat is overdue starts nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connections

from django_jobqueue import Job, JobSpec
from django_jobqueue.options import get_options, make_options
from django_jobqueue.storage.claims import Claim
from django_jobqueue.storage.database import Database
from django_jobqueue.worker.supervision import shared_memory as module
from django_jobqueue.worker.supervision.shared_memory import SharedMemory
from django_jobqueue.worker.worker import Worker
from tests.testapp import jobs

pytestmark = pytest.mark.django_db(transaction=True)


def make_worker(*, is_overdue: bool) -> Worker:
    worker = Worker(get_options())
    if is_overdue:
        worker.heartbeat._confirmed -= 21
    return worker


def make_owned(number: int) -> Claim:
    values: dict[str, Any] = dict.fromkeys(Claim._fields)
    return Claim(**values | {"id": UUID(int=number), "lease_token": 1})


def test_no_claim_while_the_heartbeat_is_overdue() -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(3))
    worker = make_worker(is_overdue=True)

    assert worker.claimer.step(Database(alias="default")) == pytest.approx(0.25)
    assert Job.objects.counts()["pending"] == 3

    # Confirmed again: it goes on.
    worker.heartbeat.step(Database(alias="default"))
    worker.slots.close()
    worker.claimer.step(Database(alias="default"))
    assert Job.objects.counts()["running"] == 3
    connections.close_all()


def test_claimed_jobs_that_have_not_started_are_given_back() -> None:
    jobs.nothing.enqueue()
    worker = make_worker(is_overdue=False)
    worker.slots.close()
    worker.claimer.step(Database(alias="default"))
    assert worker.slots.waiting == 1

    worker.heartbeat._confirmed -= 21
    worker.claimer.step(Database(alias="default"))
    worker.finisher.step(Database(alias="default"))

    job = Job.objects.get()
    assert (worker.slots.waiting, job.status, job.attempts) == (0, "pending", 0)
    connections.close_all()


def test_nothing_starts_while_jobs_of_one_attempt_could_not_be_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or such a job, whose end is not written yet, would start again after a crash."""
    monkeypatch.setattr(module, "KEPT_ATTEMPTS", 1)
    jobs.nothing.enqueue()
    worker = make_worker(is_overdue=False)
    worker.shared_memory = shared_memory = SharedMemory(2)
    shared_memory.close_file()
    [first, _] = [shared_memory.keep(make_owned(number)) for number in (1, 2)]
    assert first is not None

    worker.claimer.step(Database(alias="default"))
    assert Job.objects.get().status == "pending"

    shared_memory.forget(first)
    worker.slots.close()
    worker.claimer.step(Database(alias="default"))
    assert Job.objects.get().status == "running"
    connections.close_all()


@pytest.mark.parametrize(
    ("interval", "ttl", "age", "is_overdue"),
    [(5, 30, 19, False), (5, 30, 21, True), (1, 3, 1.9, False), (1, 3, 2.1, True)],
)
def test_a_heartbeat_is_overdue_two_beats_before_the_ttl(
    interval: float, ttl: float, age: float, is_overdue: bool
) -> None:
    options = make_options({"heartbeat_interval": interval, "heartbeat_ttl": ttl})
    assert options.heartbeat_ttl == timedelta(seconds=ttl)
    worker = Worker(options)

    worker.heartbeat._confirmed -= age
    assert worker.heartbeat.is_overdue() == is_overdue
