"""travel(): the clock that every transition reads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_jobqueue import DeadJob, Job
from django_jobqueue.exceptions import InvalidTime
from django_jobqueue.storage import test_hooks
from django_jobqueue.testing import run_jobs, travel
from tests.factories import make_dead_job
from tests.testapp import jobs

MOMENT = datetime(2040, 2, 29, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.mark.django_db
def test_jobs_are_enqueued_at_the_time_of_the_clock() -> None:
    with travel(MOMENT):
        job = jobs.add.using(delay=HOUR).enqueue(x=1)
        Job.objects.enqueue_many([jobs.add.spec(x=2)])

    job.refresh_from_db()
    assert (job.created_at, job.run_at) == (MOMENT, MOMENT + HOUR)
    assert Job.objects.get(status="pending").created_at == MOMENT


@pytest.mark.django_db
def test_jobs_are_due_by_the_clock() -> None:
    job = jobs.add.using(run_at=MOMENT).enqueue(x=1)

    with travel(MOMENT - HOUR) as clock:
        assert not run_jobs()
        clock.move(minutes=59)
        assert not run_jobs()
        clock.move(60)
        assert run_jobs().results == [2]

    job.refresh_from_db()
    assert job.claimed_at == job.finished_at == MOMENT


@pytest.mark.django_db
@pytest.mark.parametrize("handler", ["fail", "leave_effect_atomically"])
def test_retries_and_ends_have_the_time_of_the_clock(handler: str) -> None:
    payload: dict[str, Any] = {"name": "x"} if "atomically" in handler else {}
    with travel(MOMENT):
        job = getattr(jobs, handler).using(backoff=60).enqueue(**payload)
        run_jobs(raise_errors=False)

    job.refresh_from_db()
    if handler == "fail":
        assert job.run_at == MOMENT + timedelta(seconds=60)
    else:
        assert job.finished_at == MOMENT


@pytest.mark.django_db
def test_deaths_cancellations_and_requeues_have_the_time_of_the_clock() -> None:
    make_dead_job()
    with travel(MOMENT):
        cancelled = jobs.add.enqueue(x=1)
        cancelled.cancel()
        jobs.discard_itself.enqueue()
        run_jobs()
        assert DeadJob.objects.get(job_type="testapp.discard_itself").died_at == MOMENT
        requeued = DeadJob.objects.get(job_type="testapp.add").requeue()

    assert cancelled.finished_at == MOMENT
    assert requeued is not None
    assert requeued.run_at == MOMENT


@pytest.mark.django_db
def test_jobs_expire_by_the_clock() -> None:
    jobs.add.using(expires_at=MOMENT).enqueue(x=1)

    with travel(MOMENT + HOUR):
        assert run_jobs().outcomes == ["cancelled"]


@pytest.mark.django_db
def test_run_jobs_restores_the_clock_of_the_test() -> None:
    with travel(MOMENT) as clock:
        jobs.add.using(delay=HOUR).enqueue(x=1)
        assert len(run_jobs(scheduled=True)) == 1
        assert clock.now() == MOMENT
        assert jobs.nothing.enqueue().created_at == MOMENT


def test_a_duration_counts_from_the_time_of_the_outer_clock() -> None:
    before = timezone.now()
    with travel(HOUR) as clock:
        assert before + HOUR <= clock.now() <= timezone.now() + HOUR
        clock.set(MOMENT)
        with travel(3600) as inner:
            assert inner.now() == MOMENT + HOUR
            assert inner.move(-HOUR) == MOMENT
        assert test_hooks.clock == clock.now
    with travel() as stopped:
        assert stopped.now() == stopped.now() <= timezone.now()
    assert test_hooks.clock is None


def test_a_test_can_be_decorated() -> None:
    @travel(MOMENT)
    def decorated() -> datetime:
        assert test_hooks.clock is not None
        return test_hooks.clock()

    assert decorated() == decorated() == MOMENT
    assert test_hooks.clock is None


@pytest.mark.parametrize("value", ["tomorrow", True, [1]])
def test_a_value_that_is_not_a_time_is_refused(value: Any) -> None:
    with pytest.raises(InvalidTime) as caught:
        travel(value)
    assert str(caught.value) == (
        f"travel() takes an aware datetime, a timedelta or seconds, not {value!r}."
    )


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(InvalidTime) as caught:
        travel(MOMENT.replace(tzinfo=None))
    assert str(caught.value) == (
        "travel() takes an aware datetime, not the naive 2040-02-29T12:00:00. "
        "Use timezone.make_aware(), or datetime(…, tzinfo=UTC)."
    )
