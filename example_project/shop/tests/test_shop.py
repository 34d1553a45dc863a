"""The page, its buttons, and the jobs called as plain functions.

python manage.py test
"""

from __future__ import annotations

import asyncio
import json
import re
from datetime import date, timedelta
from typing import Any
from unittest import mock

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core import mail
from django.db.models import Sum
from django.http import HttpResponse
from django.test import (
    Client,
    SimpleTestCase,
    TestCase,
    TransactionTestCase,
    override_settings,
)
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import get_language, override

from django_jobqueue import DeadJob, Job, JobContext, RateLimited, Snooze
from django_jobqueue.context import AttemptFlags
from django_jobqueue.registry import get_handler

from .. import actions, jobs, middleware, payments, thumbnails
from ..models import Customer, LedgerEntry, Order, Payment, Product


def make_context(*, meta: dict[str, Any] | None = None, **flags: bool) -> JobContext:
    """Return the context that a worker passes to a first attempt."""
    return JobContext(
        job_id=Job().pk,
        job_type="shop.test",
        attempt=1,
        max_attempts=3,
        deadline=timezone.now() + timedelta(minutes=1),
        _flags=AttemptFlags(**flags),
        _read_meta=lambda: meta or {},
    )


class PageTests(TestCase):
    databases = frozenset({"default", "business"})

    def press(self, name: str) -> Job:
        self.client.post(reverse("shop:start", args=[name]))
        return Job.objects.latest("id")

    def test_page_has_a_button_for_each_action(self) -> None:
        page = self.client.get(reverse("shop:index"))
        for action in actions.ACTIONS.values():
            self.assertContains(page, f'action="/start/{action.name}/"')
            self.assertContains(page, action.title)

    def test_page_has_no_inline_style_or_script(self) -> None:
        page = self.client.get(reverse("shop:index")).content.decode()
        assert "<style" not in page
        assert "style=" not in page
        assert "onclick" not in page
        assert page.count("<script") == page.count("<script type=")

    def test_page_leads_to_the_admin(self) -> None:
        page = self.client.get(reverse("shop:index"))
        for model in ("job", "deadjob", "workerheartbeat"):
            self.assertContains(page, f'href="/admin/jobqueue/{model}/"')

    def test_links_to_the_admin_exist(self) -> None:
        self.press("order")
        DeadJob.objects.create(job_type="shop.import_feed", reason="discarded")
        page = self.client.get(reverse("shop:index")).content.decode()
        self.client.force_login(User.objects.create_superuser("admin"))
        links = set(re.findall(r'href="(/admin/jobqueue/[^"]+)"', page))
        # Three lists, six of them by status, a job and a dead one.
        assert len(links) == 11
        for link in links:
            with self.subTest(link):
                assert self.client.get(link).status_code == 200

    def test_every_button_enqueues_one_job(self) -> None:
        for number, action in enumerate(actions.ACTIONS.values(), start=1):
            with self.subTest(action.name):
                answer = self.client.post(reverse("shop:start", args=[action.name]))
                self.assertRedirects(answer, reverse("shop:index"))
                assert Job.objects.count() == number

    def test_started_jobs_are_shown_with_their_status(self) -> None:
        self.press("sign-up")
        page = self.client.get(reverse("shop:index"))
        self.assertContains(page, "Your jobs")
        self.assertContains(page, '<span class="status pending">pending</span>')
        self.assertContains(page, "1</strong> pending")

    def test_live_part_is_the_board_alone(self) -> None:
        self.press("sign-up")
        part = self.client.get(reverse("shop:live"))
        self.assertContains(part, "shop.send_welcome")
        self.assertNotContains(part, "<html")

    def test_buttons_need_post_and_a_csrf_token(self) -> None:
        client = Client(enforce_csrf_checks=True)
        address = reverse("shop:start", args=["sign-up"])
        assert client.get(address).status_code == 405
        assert client.post(address).status_code == 403
        assert Job.objects.count() == 0

    def test_unknown_button_is_not_found(self) -> None:
        answer = self.client.post(reverse("shop:start", args=["nothing"]))
        assert answer.status_code == 404

    def test_pressing_the_unique_button_twice_makes_one_job(self) -> None:
        self.press("search")
        address = reverse("shop:start", args=["search"])
        page = self.client.post(address, follow=True)
        self.assertContains(page, "was waiting already")
        assert Job.objects.count() == 1

    def test_later_job_is_scheduled(self) -> None:
        job = self.press("review")
        assert job.status == "scheduled"
        self.assertContains(self.client.get(reverse("shop:index")), "runs in")

    def test_waiting_job_can_be_cancelled(self) -> None:
        job = self.press("stock")
        page = self.client.post(reverse("shop:cancel", args=[job.pk]), follow=True)
        self.assertContains(page, "was cancelled")
        assert Job.objects.get(pk=job.pk).status == "cancelled"

    def test_dead_job_is_shown_escaped_and_can_be_requeued(self) -> None:
        dead = DeadJob.objects.create(
            job_type="shop.import_feed",
            payload={"text": "[]"},
            reason="discarded",
            error="<script>alert(1)</script>",
        )
        page = self.client.get(reverse("shop:index"))
        self.assertContains(page, "discarded: &lt;script&gt;")
        page = self.client.post(reverse("shop:requeue", args=[dead.pk]), follow=True)
        self.assertContains(page, "was requeued")
        assert Job.objects.get(pk=dead.pk).status == "pending"

    def test_page_needs_no_more_queries_for_more_jobs(self) -> None:
        self.press("order")
        with self.assertNumQueries(10):
            self.client.get(reverse("shop:index"))
        for _number in range(20):
            self.press("order")
        with self.assertNumQueries(10):
            self.client.get(reverse("shop:index"))


class MiddlewareTests(TestCase):
    databases = frozenset({"default", "business"})

    def test_job_runs_in_the_language_it_was_enqueued_in(self) -> None:
        seen = []
        run = middleware.set_language(lambda *call: seen.append(get_language()))
        run(make_context(meta={"language": "de"}), [], {})
        run(make_context(), [], {})
        assert seen == ["de", "en"]
        assert get_language() == "en"

    async def test_async_job_does_too(self) -> None:
        seen = []

        async def call_next(*call: object) -> None:
            seen.append(get_language())

        run = middleware.set_language(call_next)
        await run(make_context(meta={"language": "fr"}), [], {})
        assert seen == ["fr"]
        assert get_language() == "en"

    def test_welcome_has_a_date_in_the_language_of_the_visitor(self) -> None:
        customer = actions.make_customer()
        with (
            override("de"),
            mock.patch.object(timezone, "localdate", return_value=date(2026, 3, 2)),
        ):
            jobs.send_welcome(customer_id=customer.pk)
        assert "Montag, 2 März 2026" in mail.outbox[0].body

    def test_sign_up_stores_the_language(self) -> None:
        job = actions.ACTIONS["sign-up"].start()
        assert job.meta["language"] in actions.LANGUAGES


class AsyncViewTests(TransactionTestCase):
    databases = frozenset({"default", "business"})

    async def ask(self) -> HttpResponse:
        order = await sync_to_async(actions.place_order)()
        return await self.async_client.post(
            reverse("shop:ask-partner", args=[order.pk])
        )

    async def test_view_returns_the_result_of_the_job(self) -> None:
        asking = asyncio.create_task(self.ask())
        # The view waits on this event loop without blocking it.
        while not await Job.objects.aexists():
            await asyncio.sleep(0.01)
        # The update that a worker would write.
        await Job.objects.aupdate(
            status="succeeded", result={"status": 202}, finished_at=timezone.now()
        )
        answer = await asking
        assert answer.status_code == 200
        assert json.loads(answer.content)["result"] == {"status": 202}

    @override_settings(PARTNER_TIMEOUT=0.05)
    async def test_slow_job_is_cancelled(self) -> None:
        answer = await self.ask()
        assert answer.status_code == 503
        assert json.loads(answer.content)["status"] == "cancelled"
        assert (await Job.objects.aget()).status == "cancelled"


class JobTests(TestCase):
    databases = frozenset({"default", "business"})

    def test_sign_up_sends_a_mail(self) -> None:
        customer = actions.make_customer()
        jobs.send_welcome(customer_id=customer.pk)
        [message] = mail.outbox
        assert message.to == [customer.email]
        assert Customer.objects.get().welcomed_at is not None

    def test_order_is_packed_and_its_receipt_enqueued(self) -> None:
        order = actions.place_order()
        jobs.process_order(order_id=order.pk)
        assert Order.objects.get().status == "packed"
        assert Product.objects.get().sold == order.quantity
        receipt = Job.objects.get(job_type="shop.send_receipt")
        assert receipt.payload == {"order_id": order.pk}
        jobs.send_receipt(**receipt.payload)
        assert len(mail.outbox) == 1

    def test_order_ends_in_its_own_transaction(self) -> None:
        assert get_handler("shop.process_order").atomic

    def test_thumbnail_is_a_png(self) -> None:
        photo = actions.take_photo()
        jobs.make_thumbnail(photo_id=photo.pk)
        answer = self.client.get(reverse("shop:photo", args=[photo.pk]))
        assert answer["Content-Type"] == "image/png"
        assert answer.content.startswith(b"\x89PNG")
        self.assertContains(self.client.get(reverse("shop:index")), "photos/")

    def test_photo_without_a_thumbnail_is_not_found(self) -> None:
        photo = actions.take_photo()
        answer = self.client.get(reverse("shop:photo", args=[photo.pk]))
        assert answer.status_code == 404

    @override_settings(PAYMENT_FAILURE_RATE=0)
    def test_payment_run_twice_is_paid_once(self) -> None:
        order = actions.place_order()
        context = make_context()
        for _attempt in range(2):
            jobs.charge_card(context, order_id=order.pk)
        assert Payment.objects.get().order_id == order.pk
        assert Order.objects.get().status == "paid"

    def test_payment_that_fails_leaves_nothing(self) -> None:
        order = actions.place_order()
        error = payments.PaymentUnavailable("503")
        with (
            mock.patch.object(payments, "charge", side_effect=error),
            pytest.raises(payments.PaymentUnavailable),
        ):
            jobs.charge_card(make_context(), order_id=order.pk)
        assert not Payment.objects.exists()

    def test_rate_limit_of_the_provider_delays_the_job(self) -> None:
        order = actions.place_order()
        error = payments.TooManyRequests(retry_after=3)
        with (
            mock.patch.object(payments, "charge", side_effect=error),
            pytest.raises(RateLimited) as caught,
        ):
            jobs.charge_card(make_context(), order_id=order.pk)
        assert caught.value.delay == timedelta(seconds=3)

    @mock.patch("time.sleep")
    def test_report_counts_the_orders_of_today(self, sleep: mock.Mock) -> None:
        actions.place_order()
        result = jobs.build_report(make_context(), days=3)
        assert result == {"days": 3, "orders": 1}

    def test_long_jobs_snooze_when_the_worker_stops(self) -> None:
        for function in (jobs.build_report, jobs.count_stock):
            with self.subTest(function), pytest.raises(Snooze):
                function(make_context(stopping=True))

    def test_order_is_booked_in_both_databases_once(self) -> None:
        order = actions.place_order()
        for _attempt in range(2):
            jobs.book_order(order_id=order.pk)
        entry = LedgerEntry.objects.using("business").get()
        assert entry.amount == order.product.price * order.quantity
        assert Order.objects.get().is_booked

    def test_broken_feed_is_a_permanent_error(self) -> None:
        with pytest.raises(json.JSONDecodeError):
            jobs.import_feed(text=actions.BROKEN_FEED)
        assert get_handler("shop.import_feed").discard_on == (ValueError,)

    def test_export_is_a_class_with_a_context(self) -> None:
        order = actions.place_order()
        export = jobs.ExportCustomer()
        export.context = make_context()
        result = export.execute({"customer_id": order.customer_id})
        assert result["name"] == order.customer.name
        assert result["orders"][0]["quantity"] == order.quantity

    def test_review_is_asked_for_by_mail(self) -> None:
        jobs.ask_for_review(order_id=actions.place_order().pk)
        assert len(mail.outbox) == 1

    @mock.patch("asyncio.sleep")
    async def test_webhook_is_called(self, sleep: mock.AsyncMock) -> None:
        order = await sync_to_async(actions.place_order)()
        result = await jobs.call_webhook(order_id=order.pk)
        assert result == {"status": 202, "order": order.pk}

    def test_sold_is_the_sum_of_the_packed_orders(self) -> None:
        for _number in range(5):
            jobs.process_order(order_id=actions.place_order().pk)
        packed = Order.objects.aggregate(all=Sum("quantity"))["all"]
        assert Product.objects.aggregate(all=Sum("sold"))["all"] == packed


class ThumbnailTests(SimpleTestCase):
    def test_scaled_picture_has_the_size_asked_for(self) -> None:
        small = thumbnails.scale_down(thumbnails.draw_photo(7, size=32), size=8)
        assert [len(row) for row in small] == [8] * 8

    def test_pixels_are_the_mean_of_what_they_cover(self) -> None:
        pixels = [[(0, 0, 0), (100, 0, 0)], [(100, 0, 0), (200, 4, 0)]]
        assert thumbnails.scale_down(pixels, size=1) == [[(100, 1, 0)]]
