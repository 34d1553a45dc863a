"""Another time, another priority, another queue for a job that waits."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from django_jobqueue.exceptions import InvalidOption, InvalidTime, JobNotWaiting
from tests.factories import make_job

pytestmark = pytest.mark.django_db
HOUR = 3_600_000_000


def test_run_now_makes_a_scheduled_job_pending() -> None:
    job = make_job(scheduled=True, priority=1)

    job.run_now()

    assert job.status == "pending"
    expected = timezone.now().timestamp() * 1_000_000 - HOUR
    assert abs(job.rank - expected) < 60_000_000


def test_run_now_leaves_a_pending_job_its_place_in_the_line() -> None:
    job = make_job(rank=5)

    job.run_now()

    assert (job.status, job.rank) == ("pending", 5)


def test_reschedule_takes_a_time_or_a_delay() -> None:
    job = make_job()
    later = timezone.now() + timedelta(hours=2)

    job.reschedule(later)
    assert (job.status, job.run_at) == ("scheduled", later)
    job.reschedule(delay=60)
    assert timedelta() < job.run_at - timezone.now() <= timedelta(seconds=60)


def test_reschedule_refuses_a_naive_time_and_nothing_at_all() -> None:
    job = make_job()

    with pytest.raises(InvalidTime, match="naive datetime"):
        job.reschedule(datetime(2030, 1, 1))
    with pytest.raises(InvalidOption, match="run_at or delay"):
        job.reschedule()


def test_change_of_priority_keeps_the_time_of_waiting() -> None:
    job = make_job(priority=0, rank=10 * HOUR)

    job.change(priority=2, queue="fast")

    assert (job.priority, job.queue, job.rank) == (2, "fast", 8 * HOUR)


@pytest.mark.parametrize("state", ["running", "succeeded", "cancelled"])
def test_a_job_that_does_not_wait_cannot_be_changed(state: str) -> None:
    job = make_job(**{state: True})

    with pytest.raises(JobNotWaiting, match=f"is {state}"):
        job.change(priority=1)
    with pytest.raises(JobNotWaiting):
        job.run_now()
