"""eager_jobs(): jobs run before enqueue() returns."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction

from django_jobqueue import DeadJob, Job
from django_jobqueue.storage import test_hooks
from django_jobqueue.testing import RunawayJobs, capture_jobs, eager, eager_jobs
from tests.testapp import jobs, rehearsed
from tests.testapp.models import Effect

pytestmark = pytest.mark.django_db


def test_a_job_has_run_when_enqueue_returns() -> None:
    waiting = jobs.add.enqueue(x=0)
    with eager_jobs():
        job = jobs.add.enqueue(x=1)
        assert (job.status, job.result) == ("succeeded", 2)
    after = jobs.add.enqueue(x=2)

    # Only jobs enqueued in the block run, even if others are more urgent.
    waiting.refresh_from_db()
    assert (waiting.status, after.status) == ("pending", "pending")
    assert test_hooks.listeners == []


@pytest.mark.django_db(transaction=True)
def test_a_job_runs_inside_enqueue_without_a_transaction_too() -> None:
    with eager_jobs():
        job = jobs.leave_effect_atomically.enqueue(name="atomic")

    assert not connection.in_atomic_block
    assert job.status == "succeeded"
    assert Effect.objects.get().name == "atomic"


def test_a_job_runs_in_the_transaction_of_its_caller() -> None:
    with eager_jobs(), transaction.atomic():
        jobs.leave_effect.enqueue(name="undone")
        assert Effect.objects.exists()
        transaction.set_rollback(True)

    assert not Effect.objects.exists()
    assert not Job.objects.exists()


def test_jobs_of_enqueue_many_run_before_it_returns() -> None:
    with eager_jobs():
        Job.objects.enqueue_many([jobs.add.spec(x=1), jobs.add_async.spec(x=2)])

    found = Job.objects.order_by("id").values_list("result", flat=True)
    assert list(found) == [2, 3]


def test_scheduled_jobs_do_not_run() -> None:
    with eager_jobs():
        job = jobs.add.using(delay=timedelta(hours=1)).enqueue(x=1)

    assert job.status == "scheduled"


def test_jobs_enqueued_by_a_job_run_after_it_has_ended() -> None:
    with eager_jobs(), capture_jobs() as captured:
        job = rehearsed.chain.enqueue(length=3)

    ended = Job.objects.order_by("finished_at").values_list("result", flat=True)
    assert list(ended) == [3, 2, 1]
    assert [each.payload["length"] for each in captured] == [3, 2, 1]
    assert job.status == "succeeded"


def test_enqueue_raises_what_the_handler_raises() -> None:
    with eager_jobs(), pytest.raises(ValueError, match="it failed"):
        jobs.fail.enqueue()
    with eager_jobs():
        # The failed job is not run again.
        assert jobs.add.enqueue(x=1).result == 2


def test_without_raise_errors_an_error_is_only_recorded() -> None:
    with eager_jobs(raise_errors=False):
        failed = jobs.fail.using(backoff=60).enqueue()
        dead = jobs.fail.using(max_attempts=1).enqueue()

    assert (failed.status, failed.error) == ("scheduled", "ValueError: it failed")
    assert DeadJob.objects.get().pk == dead.pk


def test_a_job_that_enqueues_itself_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(eager, "MAX_ATTEMPTS_PER_RUN", 5)
    with eager_jobs(), pytest.raises(RunawayJobs) as caught:
        rehearsed.enqueue_itself.enqueue()
    assert str(caught.value) == (
        "eager_jobs() has run 5 jobs for one enqueue(), and more are waiting: "
        "testapp.enqueue_itself. Does a job enqueue itself? Use capture_jobs(), or "
        "run_jobs(limit=…)."
    )


def test_a_test_can_be_decorated() -> None:
    @eager_jobs()
    def decorated() -> str:
        return jobs.add.enqueue(x=1).status

    @eager_jobs(raise_errors=False)
    async def decorated_async() -> str:
        return (await jobs.add_async.aenqueue(x=1)).status

    assert decorated() == decorated() == "succeeded"
    assert async_to_sync(decorated_async)() == "succeeded"
    assert test_hooks.listeners == []
