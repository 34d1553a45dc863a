"""Cancel: scheduled, pending, blocked → cancelled; asks a running attempt to stop."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobqueue import Job
from django_jobqueue.states import CancelResult
from tests.factories import make_job

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("status", ["scheduled", "pending", "blocked"])
def test_cancel_ends_a_waiting_job_at_once(status: str) -> None:
    job = make_job(status=status, unique_key="k", lease_token=3)

    assert job.cancel() is CancelResult.CANCELLED

    assert (job.status, job.unique_key, job.lease_token) == ("cancelled", None, 4)
    assert job.prune_at == job.finished_at + timedelta(days=7)


def test_cancel_asks_a_running_job_to_stop() -> None:
    job = make_job(running=True)

    assert job.cancel() == "requested"

    first = job.cancel_requested_at
    assert (job.status, first is not None) == ("running", True)
    job.cancel()
    assert job.cancel_requested_at == first


@pytest.mark.parametrize("end", ["succeeded", "cancelled"])
def test_cancel_does_nothing_to_an_ended_job(end: str) -> None:
    job = make_job(**{end: True})

    assert job.cancel() == "ended"

    assert job.status == end


def test_cancel_of_a_job_that_is_gone_says_that_it_ended() -> None:
    job = make_job()
    Job.objects.all().delete()

    assert job.cancel() == "ended"


async def _cancel(job: Job) -> str:
    return await job.acancel()


def test_acancel_is_cancel() -> None:
    from asgiref.sync import async_to_sync

    assert async_to_sync(_cancel)(make_job()) == "cancelled"
