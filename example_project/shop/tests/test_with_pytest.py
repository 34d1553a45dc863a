"""The same tests as pytest functions, with the fixtures of the plugin.

python -m pytest
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.core import mail
from django.test import Client

from django_jobqueue import Job
from django_jobqueue.testing import (
    JobClock,
    RanJobs,
    arun_jobs,
    assert_enqueued,
    eager_jobs,
    faults,
    refute_enqueued,
)
from django_jobqueue.testing.factories import DeadJobFactory, JobFactory

from .. import actions, jobs
from ..models import Customer, Order, Product

pytestmark = pytest.mark.django_db


def test_an_order_is_packed(run_jobs: Callable[..., RanJobs]) -> None:
    jobs.process_order.enqueue(order_id=actions.place_order().pk)
    refute_enqueued(jobs.send_receipt)

    ran = run_jobs(recursive=False)

    assert ran.outcomes == ["succeeded"]
    assert_enqueued(jobs.send_receipt, status="pending")
    assert run_jobs(queues=["mail"]).of(jobs.send_receipt).outcomes == ["succeeded"]


def test_an_order_delivered_twice_is_packed_once(
    run_jobs: Callable[..., RanJobs],
) -> None:
    order = actions.place_order()
    jobs.process_order.enqueue(order_id=order.pk)
    with faults() as fault:
        fault.deliver_twice(jobs.process_order)
        run_jobs()

    assert Product.objects.get().sold == order.quantity
    assert len(mail.outbox) == 1


def test_signing_up_enqueues_a_welcome(captured_jobs: list[Job]) -> None:
    actions.ACTIONS["sign-up"].start()

    customer = Customer.objects.get()
    assert [job.payload for job in captured_jobs] == [{"customer_id": customer.pk}]


@pytest.mark.usefixtures("eager_jobs")
def test_jobs_run_at_once() -> None:
    actions.ACTIONS["order"].start()

    assert Order.objects.get().status == "packed"
    assert len(mail.outbox) == 1


@eager_jobs(raise_errors=False)
def test_a_failing_job_can_be_left_to_the_queue() -> None:
    job = jobs.send_welcome.enqueue(customer_id=0)

    assert job.status == "scheduled"
    assert "DoesNotExist" in job.error


def test_a_review_is_asked_for_later(
    job_clock: JobClock, run_jobs: Callable[..., RanJobs]
) -> None:
    job = actions.ACTIONS["review"].start()
    assert job.run_at == job_clock.now() + timedelta(seconds=20)
    assert not run_jobs()

    job_clock.move(seconds=20)

    assert run_jobs().job_types == ["shop.ask_for_review"]


def test_async_code_in_a_plain_function() -> None:
    async def scenario(order_id: int) -> RanJobs:
        await jobs.process_order.aenqueue(order_id=order_id)
        return await arun_jobs()

    order = actions.place_order()
    assert async_to_sync(scenario)(order.pk).results[0] == {"packed": order.quantity}


def test_the_board_shows_jobs_in_every_state(client: Client) -> None:
    for trait in ("scheduled", "running", "succeeded", "cancelled"):
        JobFactory.create(handler=jobs.count_stock, **{trait: True})
    DeadJobFactory.create(handler=jobs.import_feed, discarded=True)

    page = client.get("/").content.decode()

    for word in ("scheduled", "running", "succeeded", "cancelled", "discarded"):
        assert word in page
