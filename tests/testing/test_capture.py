"""capture_jobs(): every enqueued job, without those that were rolled back."""

from __future__ import annotations

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_jobqueue import Job
from django_jobqueue.storage import test_hooks
from django_jobqueue.testing import capture_jobs, run_jobs
from tests.testapp import jobs, rehearsed

pytestmark = pytest.mark.usefixtures("database")


def names(captured: list[Job]) -> list[str]:
    return [job.job_type for job in captured]


def test_jobs_are_captured_in_the_order_of_their_enqueue() -> None:
    jobs.nothing.enqueue()
    with capture_jobs() as captured:
        first = jobs.add.enqueue(x=1)
        Job.objects.enqueue("testapp.nothing", queue="other")
        assert captured[0] is first
    jobs.fail.enqueue()

    assert names(captured) == ["testapp.add", "testapp.nothing"]
    assert (captured[0].payload, captured[1].queue) == ({"x": 1}, "other")
    assert test_hooks.listeners == []


def test_new_jobs_of_enqueue_many_are_captured() -> None:
    jobs.add.using(unique_key="taken").enqueue(x=0)
    specs = [
        jobs.add.spec(x=1),
        jobs.add.using(unique_key="taken").spec(x=2),
        jobs.add.using(unique_key="free").spec(x=3),
    ]
    with capture_jobs() as captured:
        Job.objects.enqueue_many(specs)

    assert [job.payload["x"] for job in captured] == [1, 3]
    assert [job.pk for job in captured] == [specs[0].id, specs[2].id]


def test_a_job_found_under_its_key_is_not_captured() -> None:
    jobs.add.using(unique_key="one").enqueue(x=1)
    with capture_jobs() as captured:
        assert not jobs.add.using(unique_key="one").enqueue(x=2).was_created

    assert captured == []


def test_rolled_back_jobs_are_not_captured() -> None:
    with capture_jobs() as captured:
        with transaction.atomic():
            jobs.add.enqueue(x=1)
            with transaction.atomic():
                jobs.add.enqueue(x=2)
                transaction.set_rollback(True)
        with transaction.atomic():
            jobs.add.enqueue(x=3)
            transaction.set_rollback(True)
        jobs.add.enqueue(x=4)

    assert [job.payload["x"] for job in captured] == [1, 4]


def test_jobs_enqueued_by_running_jobs_are_captured() -> None:
    with capture_jobs() as captured:
        rehearsed.chain.enqueue(length=3)
        run_jobs()

    assert [job.payload["length"] for job in captured] == [3, 2, 1]


def test_nested_blocks_capture_their_own_jobs() -> None:
    with capture_jobs() as outer:
        jobs.add.enqueue(x=1)
        with capture_jobs() as inner:
            jobs.nothing.enqueue()

    assert names(outer) == ["testapp.add", "testapp.nothing"]
    assert names(inner) == ["testapp.nothing"]


def test_a_block_that_raises_stops_capturing() -> None:
    def enqueue_and_fail() -> None:
        jobs.add.enqueue(x=1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), capture_jobs() as captured:
        enqueue_and_fail()

    assert names(captured) == ["testapp.add"]
    assert test_hooks.listeners == []


def test_jobs_of_async_code_are_captured() -> None:
    async def scenario() -> list[Job]:
        with capture_jobs() as captured:
            await jobs.add.aenqueue(x=1)
            await Job.objects.aenqueue_many([jobs.add.spec(x=2)])
        return captured

    assert names(async_to_sync(scenario)()) == ["testapp.add"] * 2
