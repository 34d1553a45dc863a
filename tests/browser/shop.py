"""A shop in operation: rows of every kind, for the browser tests and screenshots."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from django.utils import timezone

from django_jobqueue.handlers import Handler
from django_jobqueue.models import Attempt, DeadJob, Job, Queue, WorkerHeartbeat
from tests.factories import make_dead_job, make_job, make_worker

TRACEBACK = """\
Traceback (most recent call last):
  File "/srv/shop/payments/jobs.py", line 41, in charge_card
    receipt = gateway.charge(order.card, order.total)
  File "/srv/shop/payments/gateway.py", line 88, in charge
    raise PaymentDeclined(response["reason"])
shop.payments.PaymentDeclined: Card 4242 was declined: insufficient funds
"""
ERROR = "PaymentDeclined: Card 4242 was declined: insufficient funds"

# Job type → its queue and its max_attempts.
HANDLERS = {
    "shop.send_welcome": ("mail", 5),
    "shop.charge_card": ("payments", 5),
    "shop.make_thumbnail": ("images", 3),
    "shop.monthly_report": ("reports", 1),
    "shop.sync_stock": ("default", 3),
    "shop.notify_webhook": ("webhooks", 8),
}


def make_handlers() -> dict[str, Handler[..., Any]]:
    """Return the handlers of the shop."""
    return {
        name: Handler(_do_nothing, name=name, queue=queue, max_attempts=most)
        for name, (queue, most) in HANDLERS.items()
    }


def fill_shop() -> None:
    """Insert three workers, a few dozen jobs and some dead ones."""
    Queue.objects.bulk_create(
        [Queue(name=name) for name in sorted({queue for queue, _ in HANDLERS.values()})]
    )
    workers = [_make_worker(number) for number in range(3)]
    for _ in range(14):
        _make_succeeded(random.choice(["send_welcome", "make_thumbnail", "sync_stock"]))
    _make_dead_jobs()
    _make_waiting()
    _make_running(workers[0])


def find_job(job_type: str, **values: Any) -> Job:
    """Return the one job of this kind."""
    return Job.objects.get(job_type=f"shop.{job_type}", **values)


def find_dead_job(**values: Any) -> DeadJob:
    """Return the newest dead job of this kind."""
    dead = DeadJob.objects.filter(**values).order_by("-died_at").first()
    assert dead is not None
    return dead


def _do_nothing(**payload: Any) -> None:
    """Stand in for every handler: no job runs here."""


def _make_worker(number: int) -> WorkerHeartbeat:
    age = timedelta(minutes=4) if number == 2 else timedelta(seconds=number + 1)
    return make_worker(
        name=f"web-{number + 1}",
        host=f"app-{number + 1}.shop.example",
        pid=4100 + number,
        queues={"mail": 2, "payments": 4} if number == 1 else {},
        concurrency=10,
        version="0.1.0",
        started_at=timezone.now() - timedelta(hours=7 + number, minutes=12),
        beating_since=timezone.now() - timedelta(hours=7 + number, minutes=12),
        last_seen_at=timezone.now() - age,
        processed=48_213 - number * 9_000,
        failed=37 + number,
        running=3 if number == 0 else 0,
        memory=(96 + number * 11) << 20,
    )


def _make_succeeded(name: str) -> Job:
    finished = timezone.now() - timedelta(seconds=random.uniform(20, 400))
    return _make_job(
        name,
        succeeded=True,
        started_at=finished - timedelta(milliseconds=random.uniform(40, 900)),
        created_at=finished - timedelta(seconds=random.uniform(1, 3)),
        finished_at=finished,
        prune_at=finished + timedelta(days=1),
        result={"sent": True} if name == "send_welcome" else None,
    )


def _make_dead_jobs() -> None:
    for number in range(3):
        dead = make_dead_job(
            job_type="shop.charge_card",
            queue="payments",
            payload={"order_id": 31_337 + number, "total": "49.90", "currency": "EUR"},
            attempts=5,
            lease_token=5,
            max_attempts=5,
            error=ERROR,
            fingerprint="5f2a90c4d1",
            unique_key=f"charge-{31_337 + number}",
            died_at=timezone.now() - timedelta(minutes=3 + 40 * number),
        )
        for attempt in range(1, 6):
            _make_attempt(dead.pk, attempt, minutes=30 - attempt * 5)
    make_dead_job(
        job_type="shop.monthly_report",
        queue="reports",
        reason="timeout",
        error="JobTimeout: took longer than 15 min",
        payload={"month": "2026-10"},
        attempts=1,
        lease_token=1,
        died_at=timezone.now() - timedelta(hours=5),
    )


def _make_waiting() -> None:
    _make_job("make_thumbnail", cancelled=True, error="expired", **_ago(minutes=2))
    for _ in range(3):
        _make_job("notify_webhook", priority=-10, **_ago(seconds=38))
    retried = _make_job(
        "charge_card",
        status="scheduled",
        attempts=2,
        lease_token=2,
        error=ERROR,
        created_at=timezone.now() - timedelta(minutes=3),
        run_at=timezone.now() + timedelta(seconds=47),
        unique_key="charge-31902",
        priority=20,
    )
    for attempt in (1, 2):
        _make_attempt(retried.pk, attempt, minutes=3 - attempt)
    _make_job("send_welcome", scheduled=True, tags=["signup", "eu"])
    for _ in range(2):
        _make_job("send_welcome", **_ago(seconds=2))


def _make_running(worker: WorkerHeartbeat) -> None:
    begun = timezone.now() - timedelta(seconds=73)
    _make_job(
        "monthly_report",
        running=True,
        worker_id=worker.pk,
        claimed_at=begun,
        **_ago(seconds=74),
        progress={"fraction": 0.62, "note": "October, 31 of 50 stores"},
        payload={"month": "2026-11", "stores": "all"},
        tags=["report"],
        meta={"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    )
    for name in ("make_thumbnail", "sync_stock"):
        begun = timezone.now() - timedelta(seconds=1.4)
        _make_job(
            name,
            running=True,
            worker_id=worker.pk,
            claimed_at=begun,
            **_ago(seconds=1.5),
        )


def _ago(**age: float) -> dict[str, Any]:
    moment = timezone.now() - timedelta(**age)
    return {"created_at": moment, "run_at": moment}


def _make_job(name: str, **values: Any) -> Job:
    job_type = f"shop.{name}"
    payload = {"id": random.randrange(10_000, 99_999)}
    return make_job(
        **{
            "job_type": job_type,
            "queue": HANDLERS[job_type][0],
            "payload": payload,
            **values,
        }
    )


def _make_attempt(job_id: Any, number: int, *, minutes: int) -> None:
    finished = timezone.now() - timedelta(minutes=minutes)
    Attempt.objects.create(
        job_id=job_id,
        lease_token=number,
        number=number,
        started_at=finished - timedelta(seconds=1.2),
        finished_at=finished,
        outcome="failed",
        exception_class="shop.payments.PaymentDeclined",
        message="Card 4242 was declined: insufficient funds",
        traceback=TRACEBACK,
    )
