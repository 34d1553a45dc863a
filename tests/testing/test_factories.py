"""The factories: rows that the constraints of the database accept, in every state."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import pytest

from django_jobqueue import Job
from django_jobqueue.models import Attempt, DeadJob, WorkerHeartbeat
from django_jobqueue.states import DeadReason, JobStatus
from django_jobqueue.testing import run_jobs
from django_jobqueue.testing.factories import (
    AttemptFactory,
    DeadJobFactory,
    JobFactory,
    WorkerHeartbeatFactory,
)
from tests.testapp import jobs

STATUSES = [status.value for status in JobStatus if status != JobStatus.PENDING]
REASONS = {
    "timed_out": DeadReason.TIMEOUT,
    "crashed": DeadReason.CRASHED,
    "was_lost": DeadReason.LOST,
    "unknown_handler": DeadReason.UNKNOWN_HANDLER,
    "discarded": DeadReason.DISCARDED,
}


@pytest.mark.django_db
@pytest.mark.parametrize("status", STATUSES)
def test_there_is_a_trait_for_each_status(status: str) -> None:
    job = JobFactory.create(**{status: True})

    assert Job.objects.get().status == job.status == status


@pytest.mark.django_db
def test_a_retrying_job_has_failed_once() -> None:
    JobFactory.create(retrying=True)

    job = Job.objects.get()
    assert (job.status, job.attempts) == ("scheduled", 1)
    assert job.error == "ValueError: it failed"


@pytest.mark.django_db
def test_a_pending_job_of_a_handler_can_be_run() -> None:
    JobFactory.create(handler=jobs.add, payload={"x": 1})
    JobFactory.create(handler="testapp.nothing")

    assert run_jobs().results == [2, None]


@pytest.mark.django_db
@pytest.mark.parametrize("trait", ["", *REASONS])
def test_there_is_a_trait_for_each_reason_of_a_dead_job(trait: str) -> None:
    values: dict[str, Any] = {trait: True} if trait else {}
    DeadJobFactory.create(handler=jobs.add, payload={"x": 1}, **values)

    dead = DeadJob.objects.get()
    assert dead.reason == REASONS.get(trait, DeadReason.EXCEPTION)
    assert dead.requeue() is not None
    assert run_jobs().results == [2]


def test_every_dead_reason_has_a_trait() -> None:
    assert {*REASONS.values(), DeadReason.EXCEPTION} == set(DeadReason)


@pytest.mark.django_db
def test_attempts_belong_to_their_job() -> None:
    job = JobFactory.create(retrying=True)
    AttemptFactory.create(job=job)
    for trait in ("succeeded", "timed_out", "snoozed", "crashed", "was_lost"):
        AttemptFactory.create(job=job, **{trait: True})

    found = Attempt.objects.filter(job_id=job.pk).order_by("lease_token")
    assert [attempt.outcome for attempt in found] == [
        "failed",
        "succeeded",
        "timeout",
        "snoozed",
        "crashed",
        "lost",
    ]


@pytest.mark.django_db
def test_workers_are_running_stopping_or_silent() -> None:
    beating = WorkerHeartbeatFactory.create()
    silent = WorkerHeartbeatFactory.create(silent=True)
    WorkerHeartbeatFactory.create(stopping=True)

    assert silent.last_seen_at < beating.last_seen_at
    states = WorkerHeartbeat.objects.values_list("state", flat=True)
    assert sorted(states) == ["running", "running", "stopping"]


def test_without_factory_boy_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "django_jobqueue.testing.factories"
    monkeypatch.setitem(sys.modules, "factory", None)
    monkeypatch.delitem(sys.modules, name)

    with pytest.raises(ImportError) as caught:
        import_module(name)
    assert str(caught.value) == (
        "django_jobqueue.testing.factories needs factory-boy, which is not installed. "
        "Run: pip install factory-boy"
    )
