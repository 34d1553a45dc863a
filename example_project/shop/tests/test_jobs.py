"""Jobs tested in a TestCase: enqueue, run, check the effects.

python manage.py test
"""

from __future__ import annotations

from datetime import timedelta
from unittest import mock

import pytest
from asgiref.sync import sync_to_async
from django.core import mail
from django.test import TestCase, override_settings

from django_jobqueue import DeadJob, Job
from django_jobqueue.testing import JobQueueTestMixin, after

from .. import actions, jobs, payments
from ..models import Customer, LedgerEntry, Order, Payment, Product


class OrderTests(JobQueueTestMixin, TestCase):
    databases = frozenset({"default", "business"})

    def test_an_order_is_packed_and_its_receipt_sent(self) -> None:
        order = actions.place_order()
        jobs.process_order.enqueue(order_id=order.pk)

        ran = self.runJobs()

        assert ran.job_types == ["shop.process_order", "shop.send_receipt"]
        assert ran.results[0] == {"packed": order.quantity}
        assert Order.objects.get().status == "packed"
        assert [message.to for message in mail.outbox] == [[order.customer.email]]

    def test_a_button_enqueues_its_job_and_no_other(self) -> None:
        with self.captureJobs() as captured:
            self.client.post("/start/order/")

        order = Order.objects.get()
        self.assertEnqueued(
            jobs.process_order,
            queue="orders",
            priority=10,
            payload={"order_id": order.pk},
            count=1,
            among=captured,
        )
        self.assertNotEnqueued(jobs.send_receipt)

    def test_a_failed_assertion_lists_the_enqueued_jobs(self) -> None:
        jobs.ask_for_review.using(delay=20).enqueue(order_id=1)

        with pytest.raises(AssertionError) as caught:
            self.assertEnqueued(jobs.ask_for_review, payload__contains={"order_id": 2})
        assert str(caught.value) == (
            "No shop.ask_for_review with payload__contains={'order_id': 2} was "
            "enqueued. There is:\n"
            "  shop.ask_for_review queue='mail' payload={'order_id': 1} "
            "(not payload__contains)"
        )

    def test_a_review_is_asked_for_when_it_is_due(self) -> None:
        actions.ACTIONS["review"].start()
        self.assertEnqueued(jobs.ask_for_review, delay=20, status="scheduled")

        assert not self.runJobs()
        with self.travelJobs(timedelta(seconds=21)):
            assert self.runJobs().outcomes == ["succeeded"]
        assert mail.outbox[0].subject == "How was it?"

    @mock.patch("time.sleep")
    def test_pressing_twice_refreshes_the_search_once(self, sleep: mock.Mock) -> None:
        for _press in range(2):
            actions.ACTIONS["search"].start()

        self.assertEnqueued(jobs.refresh_search, count=1, unique_key="search")
        assert len(self.runJobs(scheduled=True)) == 1

    def test_a_broken_feed_is_dead_at_once(self) -> None:
        actions.ACTIONS["broken-feed"].start()

        [ran] = self.runJobs(raise_errors=False)

        assert (ran.outcome, ran.is_dead) == ("discarded", True)
        assert DeadJob.objects.get().reason == "discarded"

    def test_an_order_is_booked_in_both_databases(self) -> None:
        jobs.book_order.enqueue(order_id=actions.place_order().pk)
        with self.faultJobs(seed=1) as fault:
            fault.deliver_twice(jobs.book_order)
            assert self.runJobs().outcomes == ["lost", "succeeded"]

        assert LedgerEntry.objects.using("business").count() == 1
        assert Order.objects.get().is_booked

    def test_with_eager_jobs_the_mail_is_sent_at_once(self) -> None:
        with self.eagerJobs():
            job = actions.ACTIONS["sign-up"].start()

        assert job.status == "succeeded"
        assert len(mail.outbox) == 1
        assert Customer.objects.get().welcomed_at is not None


@override_settings(PAYMENT_FAILURE_RATE=0)
@mock.patch("time.sleep", mock.Mock())
class PaymentTests(JobQueueTestMixin, TestCase):
    def pay(self) -> Job:
        return jobs.charge_card.enqueue(order_id=actions.place_order().pk)

    def test_a_payment_that_fails_is_tried_again(self) -> None:
        self.pay()
        answers = [payments.PaymentUnavailable("503"), "receipt-1"]
        with mock.patch.object(payments, "charge", side_effect=answers):
            ran = self.runJobs(scheduled=True, raise_errors=False)

        assert ran.outcomes == ["failed", "succeeded"]
        assert ran.results[0]["receipt"] == "receipt-1"

    def test_a_worker_that_dies_after_the_charge_does_not_charge_twice(self) -> None:
        self.pay()
        references = []

        def note(amount: object, *, reference: str) -> str:
            references.append(reference)
            return "receipt"

        with (
            mock.patch.object(payments, "charge", note),
            self.faultJobs(seed=1) as fault,
        ):
            fault.kill(jobs.charge_card, at=after("shop.payments.charge"))
            assert self.runJobs(scheduled=True).outcomes == ["crashed", "succeeded"]

        # The provider recognises the payment by its reference.
        assert len(references) == 2
        assert len(set(references)) == 1
        assert Payment.objects.count() == 1

    def test_payments_survive_random_faults(self) -> None:
        for _number in range(3):
            self.pay()
        with self.faultJobs() as fault:
            points = [after("shop.payments.charge")]
            fault.at_random(jobs.charge_card, rate=0.7, points=points)
            self.runJobs(scheduled=True)
            assert Payment.objects.count() == 3
            assert set(Order.objects.values_list("status", flat=True)) == {"paid"}


class AsyncTests(JobQueueTestMixin, TestCase):
    @mock.patch("asyncio.sleep")
    async def test_a_webhook_is_called(self, sleep: mock.AsyncMock) -> None:
        order = await sync_to_async(actions.place_order)()
        with self.captureJobs() as captured:
            await jobs.call_webhook.aenqueue(order_id=order.pk)
        await self.aassertEnqueued(jobs.call_webhook, queue="hooks", among=captured)

        ran = await self.arunJobs()

        assert ran.results == [{"status": 202, "order": order.pk}]

    async def test_an_order_sells_its_product(self) -> None:
        order = await sync_to_async(actions.place_order)()
        with self.eagerJobs():
            await jobs.process_order.aenqueue(order_id=order.pk)

        assert (await Product.objects.aget()).sold == order.quantity
