"""The actions of a visitor: one button each; the demo presses them at random.

An action inserts the rows its job needs and enqueues the job, in one transaction: the
job exists if and only if the rows do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from django.db import transaction
from django.utils.text import slugify

from django_jobqueue import Job

from . import jobs
from .models import Customer, Order, Photo, Product

NAMES = ("Ada", "Björn", "Chidi", "Dolores", "Emre", "Fatima", "Grace", "Hiro")
LANGUAGES = ("en", "de", "fr")
PRODUCTS = {
    "Apples": "2.40",
    "Bread": "3.10",
    "Cheese": "5.90",
    "Coffee": "7.50",
    "Honey": "6.20",
}
BROKEN_FEED = '[{"sku": "A-1", "price": 2.4}, {"sku": "A-2", "pri'


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One button."""

    name: str
    title: str
    text: str
    enqueue: Callable[[], Job]
    # How often the demo chooses it, relative to the others.
    weight: int

    def start(self) -> Job:
        """Insert rows and job; `was_created` is False if the job existed already."""
        with transaction.atomic():
            return self.enqueue()


def make_customer() -> Customer:
    name = random.choice(NAMES)
    return Customer.objects.create(name=name, email=f"{slugify(name)}@example.com")


def place_order() -> Order:
    name, price = random.choice(list(PRODUCTS.items()))
    product, _created = Product.objects.get_or_create(
        name=name, defaults={"price": Decimal(price)}
    )
    return Order.objects.create(
        customer=make_customer(), product=product, quantity=random.randint(1, 3)
    )


def take_photo() -> Photo:
    return Photo.objects.create(title=random.choice(list(PRODUCTS)))


def _sign_up() -> Job:
    # A real shop calls django.utils.translation.get_language() in the request.
    handler = jobs.send_welcome.using(meta={"language": random.choice(LANGUAGES)})
    return handler.enqueue(customer_id=make_customer().pk)


def _order() -> Job:
    return jobs.process_order.enqueue(order_id=place_order().pk)


def _upload_photo() -> Job:
    return jobs.make_thumbnail.enqueue(photo_id=take_photo().pk)


def _pay() -> Job:
    return jobs.charge_card.enqueue(order_id=place_order().pk)


def _report() -> Job:
    return jobs.build_report.enqueue(days=20)


def _call_webhook() -> Job:
    return jobs.call_webhook.enqueue(order_id=place_order().pk)


def _import_broken_feed() -> Job:
    return jobs.import_feed.enqueue(text=BROKEN_FEED)


def _book() -> Job:
    return jobs.book_order.enqueue(order_id=place_order().pk)


def _export() -> Job:
    return jobs.ExportCustomer.enqueue(customer_id=place_order().customer_id)


def _ask_later() -> Job:
    later = jobs.ask_for_review.using(delay=timedelta(seconds=20))
    return later.enqueue(order_id=place_order().pk)


def _refresh_search() -> Job:
    only_one = jobs.refresh_search.using(unique_key="search", delay=5)
    return only_one.enqueue()


def _count_stock() -> Job:
    return jobs.count_stock.enqueue(shelves=100)


ACTIONS = {
    action.name: action
    for action in (
        Action(
            name="sign-up",
            title="Sign up",
            text="Sends the welcome mail.",
            enqueue=_sign_up,
            weight=24,
        ),
        Action(
            name="order",
            title="Place an order",
            text="Packs it exactly once: atomic=True. Then sends a receipt.",
            enqueue=_order,
            weight=24,
        ),
        Action(
            name="photo",
            title="Upload a photo",
            text="Makes a thumbnail: CPU-bound work.",
            enqueue=_upload_photo,
            weight=8,
        ),
        Action(
            name="payment",
            title="Pay by card",
            text="A provider that often fails: retries with backoff, rate limits.",
            enqueue=_pay,
            weight=12,
        ),
        Action(
            name="report",
            title="Build a report",
            text="Six seconds, with progress.",
            enqueue=_report,
            weight=2,
        ),
        Action(
            name="web-hook",
            title="Call a web-hook",
            text="An async def on the event loop.",
            enqueue=_call_webhook,
            weight=16,
        ),
        Action(
            name="broken-feed",
            title="Import a broken feed",
            text="A permanent error: the job is dead at once.",
            enqueue=_import_broken_feed,
            weight=2,
        ),
        Action(
            name="books",
            title="Book an order",
            text="Writes to two databases, both or neither.",
            enqueue=_book,
            weight=8,
        ),
        Action(
            name="export",
            title="Export a customer",
            text="A handler that is a class.",
            enqueue=_export,
            weight=6,
        ),
        Action(
            name="review",
            title="Ask for a review",
            text="Scheduled: runs in 20 seconds.",
            enqueue=_ask_later,
            weight=3,
        ),
        Action(
            name="search",
            title="Refresh the search",
            text="One unique key: press twice, still one job.",
            enqueue=_refresh_search,
            weight=3,
        ),
        Action(
            name="stock",
            title="Count the stock",
            text="Half a minute. Cancel it while it runs.",
            enqueue=_count_stock,
            weight=1,
        ),
    )
}
