"""The shop's background jobs: one of each kind that django_jobqueue supports.

Workers import this module automatically. The functions stay plain functions: the tests
call them directly. Each takes ids, never objects, and reads the rows when it runs. Each
may run twice, unless it says `atomic=True`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from datetime import timedelta
from typing import Any

from django.core.mail import send_mail
from django.db.models import F
from django.utils import timezone
from django.utils.formats import date_format

from django_jobqueue import (
    BaseHandler,
    JobContext,
    RateLimited,
    Snooze,
    exponential,
    handler,
    job,
)

from . import payments, thumbnails
from .models import Customer, LedgerEntry, Order, Payment, Photo, Product

logger = logging.getLogger(__name__)


@job(queue="mail", max_attempts=5, timeout=30)
def send_welcome(customer_id: int) -> dict[str, str]:
    """Send the sign-up mail, with the date in the visitor's language."""
    customer = Customer.objects.get(pk=customer_id)
    today = date_format(timezone.localdate(), "l, j F Y")
    _send(customer, "Welcome!", f"Hello {customer.name}, good to see you. ({today})")
    Customer.objects.filter(pk=customer_id).update(welcomed_at=timezone.now())
    return {"to": customer.email}


@job(queue="mail", max_attempts=5, timeout=30)
def send_receipt(order_id: int) -> dict[str, str]:
    """Notify the customer that the order is on its way."""
    order = Order.objects.select_related("customer").get(pk=order_id)
    _send(order.customer, f"Order {order.pk}", "It is packed and on its way.")
    return {"to": order.customer.email}


@job(queue="orders", priority=10, atomic=True)
def process_order(order_id: int) -> dict[str, Any]:
    """Pack an order exactly once.

    Its writes, the job it enqueues and its own end are one transaction: either all of
    it has happened, or nothing has and the job runs again.
    """
    order = Order.objects.select_for_update().get(pk=order_id)
    Product.objects.filter(pk=order.product_id).update(sold=F("sold") + order.quantity)
    Order.objects.filter(pk=order_id).update(status=Order.Status.PACKED)
    send_receipt.enqueue(order_id=order_id)
    return {"packed": order.quantity}


@job(queue="media", timeout=60)
def make_thumbnail(photo_id: int) -> dict[str, int]:
    """Scale a photo down: CPU-bound work."""
    small = thumbnails.scale_down(thumbnails.draw_photo(photo_id), size=48)
    png = thumbnails.write_png(small)
    Photo.objects.filter(pk=photo_id).update(thumbnail=png)
    return {"bytes": len(png)}


@job(
    queue="payments",
    max_attempts=6,
    retry_on={payments.PaymentUnavailable: exponential(1, 30)},
    takes_context=True,
)
def charge_card(context: JobContext, order_id: int) -> dict[str, str]:
    """Charge a card at a provider that sometimes fails.

    Exceptions in retry_on are retried; any other error is permanent. The reference is
    the same in every attempt, so the customer pays once.
    """
    order = Order.objects.select_related("product").get(pk=order_id)
    amount = order.product.price * order.quantity
    reference = context.idempotency_key("charge")
    try:
        receipt = payments.charge(amount, reference=reference)
    except payments.TooManyRequests as error:
        # Retry after the delay that the provider asks for, without losing an attempt.
        raise RateLimited(error.retry_after, str(error)) from error
    Payment.objects.get_or_create(
        reference=reference, defaults={"order": order, "amount": amount}
    )
    Order.objects.filter(pk=order_id).update(status=Order.Status.PAID)
    return {"receipt": receipt, "amount": str(amount)}


@job(queue="reports", timeout=120, takes_context=True)
def build_report(context: JobContext, days: int = 20) -> dict[str, int]:
    """Add up the orders day by day, and report progress."""
    today = timezone.now()
    total = 0
    for number in range(days):
        _snooze_at_shutdown(context)
        day = today - timedelta(days=number)
        total += Order.objects.filter(placed_at__date=day.date()).count()
        time.sleep(0.3)
        context.progress((number + 1) / days, f"{number + 1} of {days} days")
    return {"days": days, "orders": total}


@job(queue="hooks", timeout=10)
async def call_webhook(order_id: int) -> dict[str, Any]:
    """Notify a partner of an order. Hundreds of these wait on one event loop."""
    order = await Order.objects.select_related("customer").aget(pk=order_id)
    logger.info("calling the partner of %s", order.customer)
    # A real shop awaits its HTTP client here.
    await asyncio.sleep(random.uniform(0.2, 0.8))
    return {"status": 202, "order": order.pk}


@job(queue="imports", discard_on=ValueError)
def import_feed(text: str) -> dict[str, int]:
    """Read a supplier's feed. A broken feed is a permanent error: no retry."""
    items = json.loads(text)
    return {"items": len(items)}


@job(queue="books", databases=["default", "business"])
def book_order(order_id: int) -> dict[str, str]:
    """Write an order into the books, which are in another database.

    Both transactions are rolled back if this fails. `default` commits last, so the
    entry may already exist when the job runs again.
    """
    order = Order.objects.select_related("product").get(pk=order_id)
    entry, _created = LedgerEntry.objects.get_or_create(
        order_id=order_id, defaults={"amount": order.product.price * order.quantity}
    )
    Order.objects.filter(pk=order_id).update(is_booked=True)
    return {"amount": str(entry.amount)}


@handler("shop.export_customer", queue="reports", max_attempts=3)
class ExportCustomer(BaseHandler):
    """Collect all data of a customer. A class suits jobs with several methods."""

    def execute(self, params: dict[str, Any]) -> dict[str, Any]:
        customer = Customer.objects.get(pk=params["customer_id"])
        self.context.progress(0.5, "customer found")
        return {"name": customer.name, "orders": self._list_orders(customer)}

    def _list_orders(self, customer: Customer) -> list[dict[str, Any]]:
        orders = customer.order_set.select_related("product").order_by("pk")
        return [
            {"product": order.product.name, "quantity": order.quantity}
            for order in orders
        ]


@job(queue="mail")
def ask_for_review(order_id: int) -> dict[str, str]:
    """Ask for a review some time after the order: enqueued with a delay."""
    order = Order.objects.select_related("customer", "product").get(pk=order_id)
    _send(order.customer, "How was it?", f"You bought {order.product}.")
    return {"to": order.customer.email}


@job
def refresh_search() -> dict[str, int]:
    """Rebuild the search index: a unique key prevents a second job."""
    time.sleep(0.5)
    return {"products": Product.objects.count()}


@job(queue="reports", timeout=300, takes_context=True)
def count_stock(context: JobContext, shelves: int = 100) -> dict[str, int]:
    """Count all shelves: takes half a minute, long enough to cancel it."""
    for shelf in range(shelves):
        _snooze_at_shutdown(context)
        time.sleep(0.3)
        context.progress((shelf + 1) / shelves, f"shelf {shelf + 1} of {shelves}")
    return {"shelves": shelves}


def _snooze_at_shutdown(context: JobContext) -> None:
    if context.stopping:
        raise Snooze(0, "the worker stops; continue on another one")


def _send(customer: Customer, subject: str, text: str) -> None:
    send_mail(subject, text, None, [customer.email])
