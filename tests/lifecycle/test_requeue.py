"""Requeue: DeadJob → pending, by a person or code."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_jobqueue import DeadJob, Job, RequeueCounts
from django_jobqueue.exceptions import InvalidArguments
from tests.factories import make_dead_job, make_job

pytestmark = pytest.mark.django_db


def test_requeue_makes_the_same_job_live_again_with_new_budgets() -> None:
    dead = make_dead_job(
        crashes=2,
        lost=1,
        given_back=4,
        tags=["a"],
        expires_at=timezone.now(),
    )

    job = dead.requeue()

    assert job is not None
    assert (job.pk, job.status, job.lease_token) == (dead.pk, "pending", 4)
    assert (job.attempts, job.crashes, job.lost, job.given_back) == (0, 0, 0, 0)
    assert (job.payload, job.tags, job.isolate) == ({"x": 1}, ["a"], False)
    assert job.expires_at is None
    assert not DeadJob.objects.exists()


@pytest.mark.parametrize("reset_attempts", [True, False])
def test_who_has_killed_its_process_runs_alone_when_requeued(
    reset_attempts: bool,
) -> None:
    dead = make_dead_job(reason="crashed", crashes=3, isolate=True)

    job = dead.requeue(reset_attempts=reset_attempts)

    assert job is not None
    assert (job.crashes, job.isolate) == (0, True)


def test_requeue_can_give_one_more_attempt_only() -> None:
    job = make_dead_job(attempts=3).requeue(reset_attempts=False)

    assert job is not None
    assert (job.attempts, job.max_attempts) == (3, 4)


def test_requeue_takes_a_changed_payload_and_a_delay() -> None:
    job = make_dead_job().requeue(payload={"x": 9}, delay=timedelta(hours=1))

    assert job is not None
    assert (job.payload, job.status) == ({"x": 9}, "scheduled")
    assert job.run_at > timezone.now() + timedelta(minutes=59)


def test_requeue_refuses_a_payload_that_does_not_fit_and_loses_nothing() -> None:
    dead = make_dead_job()

    with pytest.raises(InvalidArguments, match=r"testapp\.add takes"):
        dead.requeue(payload={"z": 1})

    assert DeadJob.objects.filter(pk=dead.pk).exists()


def test_requeue_twice_makes_one_job() -> None:
    dead = make_dead_job()

    assert dead.requeue() is not None
    assert dead.requeue() is None
    assert Job.objects.count() == 1


def test_a_job_whose_key_is_in_use_stays_dead_and_is_reported() -> None:
    make_job(unique_key="k")
    taken = make_dead_job(unique_key="k")
    make_dead_job(unique_key="free")

    assert DeadJob.objects.all().requeue() == RequeueCounts(1, 1)

    assert list(DeadJob.objects.values_list("pk", flat=True)) == [taken.pk]
    assert taken.requeue() is None


def test_of_two_dead_jobs_with_one_key_one_comes_back() -> None:
    make_dead_job(unique_key="k")
    make_dead_job(unique_key="k")

    assert DeadJob.objects.all().requeue() == RequeueCounts(1, 1)
    assert (Job.objects.count(), DeadJob.objects.count()) == (1, 1)


def test_requeue_takes_more_than_one_batch() -> None:
    DeadJob.objects.bulk_create(
        DeadJob(job_type="testapp.add", payload={"x": n}, lease_token=1)
        for n in range(1200)
    )

    assert DeadJob.objects.filter(job_type="testapp.add").requeue().requeued == 1200

    assert (Job.objects.count(), DeadJob.objects.count()) == (1200, 0)
