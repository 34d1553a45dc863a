"""Which held job runs where: one thread wakes the next, as far as there are slots."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobqueue.lifecycle.claim import Claim
from django_jobqueue.lifecycle.endings import Ending
from django_jobqueue.options import make_options
from django_jobqueue.outcomes import Succeeded
from django_jobqueue.worker import slots as module
from django_jobqueue.worker.bench import Bench
from django_jobqueue.worker.held import HeldJob
from django_jobqueue.worker.slots import Slots
from tests.waiting import wait_until

CONCURRENCY = 8


class Hall:
    """Slots whose jobs do what a test says, and the ends of these jobs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.action: Callable[[], Any] = lambda: None
        self.endings: list[Ending] = []
        monkeypatch.setattr(module, "run_attempt", self._run)
        bench = Bench(
            options=make_options({}),
            worker_id=uuid.uuid4(),
            report_progress=lambda claim, progress: None,
            report_started=lambda claim: None,
        )
        self.slots = Slots(
            CONCURRENCY, bench, on_end=self.endings.append, on_room=lambda: None
        )

    def add(self, count: int) -> None:
        self.slots.add([make_held() for _ in range(count)])

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.endings) >= count)

    def _run(self, held: HeldJob, bench: Bench) -> Ending:
        self.action()
        return Ending(claim=held.claim, outcome=Succeeded())


def make_held() -> HeldJob:
    values: dict[str, Any] = dict.fromkeys(Claim._fields)
    values |= {"id": uuid.uuid4(), "lease_token": 1, "job_type": "testapp.nothing"}
    return HeldJob(Claim(**values))


@pytest.fixture
def hall(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hall]:
    made = Hall(monkeypatch)
    yield made
    made.slots.close()


@pytest.mark.parametrize("is_awake", [False, True], ids=["new threads", "idle threads"])
def test_jobs_that_wait_for_each_other_all_run_at_a_time(
    hall: Hall, is_awake: bool
) -> None:
    barrier = threading.Barrier(CONCURRENCY, timeout=20)
    hall.action = barrier.wait
    rounds = 2 if is_awake else 1
    for number in range(1, rounds + 1):
        hall.add(CONCURRENCY)
        hall.wait_for(number * CONCURRENCY)
    assert not barrier.broken


def test_jobs_that_come_one_by_one_run_beside_those_that_go_on(hall: Hall) -> None:
    barrier = threading.Barrier(CONCURRENCY, timeout=20)
    hall.action = barrier.wait
    for number in range(1, CONCURRENCY):
        hall.add(1)
        wait_until(lambda running=number: hall.slots.running == running)
    hall.add(1)
    hall.wait_for(CONCURRENCY)
    assert not barrier.broken


def test_no_more_jobs_run_at_a_time_than_there_are_slots(hall: Hall) -> None:
    most = 0
    lock, pause = threading.Lock(), threading.Event()
    inside = 0

    def look() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        pause.wait(0.001)
        with lock:
            inside -= 1

    hall.action = look
    hall.add(200)
    hall.wait_for(200)
    assert most <= CONCURRENCY


def test_only_jobs_that_wait_for_long_are_taken_out(hall: Hall) -> None:
    old, young = make_held(), make_held()
    old.held_since -= 10
    hall.slots.close()
    hall.slots.add([old, young])
    assert hall.slots.take_waiting(older_than=5) == [old]
    assert hall.slots.waiting == 1
    assert hall.slots.take_waiting() == [young]
