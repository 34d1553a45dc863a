"""Waiting for the end of a job."""

from __future__ import annotations

import threading

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from django_jobqueue import Job
from django_jobqueue.exceptions import (
    JobDead,
    ResultsNotKept,
    WaitInTransaction,
    WaitTimeout,
)
from tests.factories import make_dead_job, make_job, make_worker

pytestmark = pytest.mark.django_db(transaction=True)


def test_wait_returns_the_job_that_has_ended() -> None:
    job = make_job(succeeded=True, result=3)

    assert job.wait(timeout=1).result == 3
    assert async_to_sync(job.await_end)(1).result == 3


def test_wait_returns_when_the_job_ends() -> None:
    job = make_job()
    ender = threading.Thread(target=_cancel, args=(job,))
    ender.start()

    assert job.wait(timeout=30).status == "cancelled"
    ender.join()


def _cancel(job: Job) -> None:
    Job.objects.get(pk=job.pk).cancel()
    connection.close()


def test_timeout_says_that_no_worker_is_running_or_serves_the_queue() -> None:
    job = make_job()
    with pytest.raises(WaitTimeout, match="No worker is running: start one with"):
        job.wait(timeout=0.02)
    with pytest.raises(WaitTimeout, match="No worker is running"):
        async_to_sync(job.await_end)(0.02)
    make_worker(queues={"other": 1})
    with pytest.raises(WaitTimeout, match="No worker serves its queue 'default'"):
        job.wait(timeout=0.02)
    make_worker()
    with pytest.raises(WaitTimeout, match=r"0\.02 s\.$"):
        job.wait(timeout=0.02)


def test_wait_gives_up_after_its_timeout() -> None:
    job = make_job()

    with pytest.raises(WaitTimeout, match=r"has not ended within 0\.02 s"):
        job.wait(timeout=0.02)


def test_wait_for_a_dead_job_raises_its_error() -> None:
    dead = make_dead_job()

    with pytest.raises(JobDead, match="ValueError: it failed") as caught:
        Job(pk=dead.pk).wait(timeout=1)
    assert caught.value.dead_job == dead


def test_wait_for_a_pruned_job_says_that_results_are_not_kept() -> None:
    with pytest.raises(ResultsNotKept, match="results are not kept"):
        Job().wait(timeout=1)


def test_wait_inside_a_transaction_is_refused_at_once() -> None:
    job = make_job()

    with transaction.atomic(), pytest.raises(WaitInTransaction, match="cannot start"):
        job.wait(timeout=1)
