"""Enqueue, wait and cancel from async views without blocking the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient
from django.urls import path

from django_jobqueue import Job
from django_jobqueue.exceptions import WaitInTransaction, WaitTimeout
from django_jobqueue.lifecycle import cancel, enqueue
from django_jobqueue.storage import wait
from tests.factories import make_job
from tests.testapp.jobs import add

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


async def enqueue_and_wait(request: HttpRequest) -> HttpResponse:
    job = await add.aenqueue(1, y=2)
    try:
        ended = await job.await_end(timeout=float(request.GET["timeout"]))
    except WaitTimeout:
        result = await job.acancel()
        return JsonResponse({"id": str(job.pk), "cancel": result}, status=503)
    return JsonResponse({"id": str(job.pk), "status": ended.status})


urlpatterns = [path("", enqueue_and_wait)]


async def find_one() -> Job:
    """Wait for the only job."""
    while (job := await Job.objects.afirst()) is None:
        await asyncio.sleep(0.005)
    return job


def test_a_view_that_waits_does_not_block_the_event_loop() -> None:
    async def ask() -> Any:
        asking = asyncio.create_task(AsyncClient().get("/", {"timeout": 30}))
        # On the same loop: if the view blocked it, this would not run in time.
        await (await find_one()).acancel()
        return await asking

    answer = async_to_sync(ask)()
    assert answer.status_code == 200
    assert answer.json()["status"] == "cancelled"


def test_a_view_can_time_out_and_cancel() -> None:
    async def ask() -> Any:
        return await AsyncClient().get("/", {"timeout": 0.02})

    answer = async_to_sync(ask)()
    assert (answer.status_code, answer.json()["cancel"]) == (503, "cancelled")
    assert Job.objects.get(pk=UUID(answer.json()["id"])).status == "cancelled"


def block_call(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> tuple[threading.Event, threading.Event]:
    """Block a function after it was entered until the event is set: a slow database."""
    begun, may_go_on = threading.Event(), threading.Event()
    original: Callable[..., Any] = getattr(module, name)

    def slow(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        assert may_go_on.wait(30), "the event loop was blocked"
        return original(*args, **kwargs)

    monkeypatch.setattr(module, name, slow)
    return begun, may_go_on


@pytest.mark.parametrize(
    ("module", "name", "call"),
    [
        (enqueue, "enqueue_job", lambda job: add.aenqueue(1)),
        (
            enqueue,
            "enqueue_job",
            lambda job: Job.objects.aenqueue("testapp.add", {"x": 1}),
        ),
        (cancel, "cancel_job", lambda job: job.acancel()),
        (wait, "_read_ended", lambda job: job.await_end(30)),
    ],
    ids=["handler.aenqueue", "Job.objects.aenqueue", "acancel", "await_end"],
)
def test_a_slow_database_does_not_block_the_loop(
    module: Any, name: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(succeeded=True)
    begun, may_go_on = block_call(monkeypatch, module, name)

    async def both() -> Any:
        calling = asyncio.create_task(call(job))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        # The call blocks in its thread, and the loop still runs this line.
        may_go_on.set()
        return await calling

    assert async_to_sync(both)() is not None


@pytest.mark.parametrize("name", ["enqueue", "wait", "cancel"])
def test_the_sync_method_refuses_to_block_a_loop(name: str) -> None:
    job = make_job()
    calls = {"enqueue": lambda: add.enqueue(1), "wait": job.wait, "cancel": job.cancel}

    async def call() -> None:
        calls[name]()

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(call())


def test_async_wait_in_a_transaction_is_refused() -> None:
    job = make_job()
    with transaction.atomic(), pytest.raises(WaitInTransaction):
        async_to_sync(job.await_end)(1)
