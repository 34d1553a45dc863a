"""Async jobs: each ends exactly once, whatever becomes of its task."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from django.utils import timezone, translation

from django_jobqueue.exceptions import JobCancelled
from django_jobqueue.options import make_options
from django_jobqueue.outcomes import Cancelled, GivenBack, Succeeded
from django_jobqueue.storage.claims import Claim
from django_jobqueue.storage.endings import Ending
from django_jobqueue.worker.running import event_loop as module
from django_jobqueue.worker.running.attempt_env import AttemptEnv
from django_jobqueue.worker.running.in_flight import InFlightJob, InFlightJobs
from django_jobqueue.worker.running.thread_pool import ThreadPool
from tests.waiting import wait_until

request_id: ContextVar[str] = ContextVar("request_id", default="none")


class Hall:
    """Two slots, whose coroutines do what a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.in_flight = InFlightJobs()
        self.endings: list[Ending] = []
        self.action: Callable[[], Any] = lambda: asyncio.sleep(0)
        monkeypatch.setattr(module, "arun_attempt", self._run)
        monkeypatch.setattr(module, "reset_connections", lambda: None)
        env = AttemptEnv(
            options=make_options({}),
            worker_id=uuid.uuid4(),
            report_progress=lambda claim, progress: None,
            report_started=lambda claim: None,
        )
        self.slots = ThreadPool(
            2, env, on_end=self.endings.append, on_room=lambda: None
        )

    def add(self, count: int) -> list[InFlightJob]:
        values: dict[str, Any] = dict.fromkeys(Claim._fields)
        values |= {"lease_token": 1, "job_type": "testapp.add_async"}
        jobs = self.in_flight.add(
            [Claim(**{**values, "id": uuid.uuid4()}) for _ in range(count)]
        )
        self.slots.add(jobs)
        return jobs

    def wait_for(self, count: int) -> list[Ending]:
        wait_until(lambda: len(self.endings) >= count, pause=0.002)
        assert len({ending.claim.id for ending in self.endings}) == len(self.endings)
        return self.endings

    async def _run(self, job: InFlightJob, env: AttemptEnv) -> Ending:
        await self.action()
        return Ending(claim=job.claim, outcome=Succeeded())


@pytest.fixture
def hall(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hall]:
    made = Hall(monkeypatch)
    yield made
    made.slots.close()
    assert made.slots.stop_coroutines(5)


def block_loop(hall: Hall) -> threading.Event:
    """Keep the loop busy, so that tasks exist whose first step has not come."""
    may_go_on, begun = threading.Event(), threading.Event()
    action = hall.action

    async def block() -> None:
        begun.set()
        may_go_on.wait(30)

    hall.action = block
    hall.add(1)
    assert begun.wait(30)
    hall.action = action
    return may_go_on


def test_job_cancelled_before_its_first_step_ends_and_frees_its_slot(
    hall: Hall,
) -> None:
    for _ in range(5):
        may_go_on = block_loop(hall)
        [late] = hall.add(1)
        # Its task is made only now, and cancelled before it has begun.
        late.flags.cancelled = True
        may_go_on.set()
        wait_until(lambda: hall.slots.running == 0, pause=0.001)
    outcomes = [type(ending.outcome) for ending in hall.wait_for(10)]
    assert outcomes.count(Cancelled) == 5
    hall.add(4)
    hall.wait_for(14)


def test_two_slots_still_work_after_thousands_of_jobs_were_cancelled(
    hall: Hall,
) -> None:
    hall.action = lambda: asyncio.sleep(0.02)
    jobs = hall.add(2000)
    for job in jobs:
        job.flags.cancelled = True
        job.interrupt(JobCancelled)
    hall.wait_for(2000)
    hall.action = lambda: asyncio.sleep(0)
    assert hall.slots.running == 0
    hall.add(10)
    hall.wait_for(2010)
    assert all(type(ending.outcome) is Succeeded for ending in hall.endings[2000:])


def test_job_whose_task_was_cancelled_by_another_before_it_began_is_given_back(
    hall: Hall,
) -> None:
    """Without a cancel request: a job has cancelled all tasks of the loop."""

    async def cancel_the_others() -> None:
        for task in hall.slots._coroutines._tasks - {asyncio.current_task()}:
            task.cancel()

    may_go_on = block_loop(hall)
    # Both are made in one go; the first to run cancels the second before it begins.
    hall.slots.concurrency = 3
    hall.action = cancel_the_others
    hall.add(2)
    may_go_on.set()
    kinds = sorted(type(ending.outcome).__name__ for ending in hall.wait_for(3))
    assert kinds == ["GivenBack", "Succeeded", "Succeeded"]
    assert any(isinstance(ending.outcome, GivenBack) for ending in hall.endings)


def test_job_that_cancels_itself_in_its_last_step_keeps_its_end(hall: Hall) -> None:
    async def cancel_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    hall.action = cancel_itself
    hall.add(3)
    assert all(type(e.outcome) is Succeeded for e in hall.wait_for(3))
    wait_until(lambda: hall.slots.running == 0)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_job_that_ends_the_loop_still_ends_itself(
    hall: Hall, error: type[BaseException]
) -> None:
    async def fail() -> None:
        raise error

    hall.action = fail
    hall.add(2)
    hall.wait_for(2)
    hall.action = lambda: asyncio.sleep(0)
    hall.add(4)
    hall.wait_for(6)


def test_context_of_an_async_job_is_its_own(hall: Hall) -> None:
    seen: list[Any] = []

    async def spoil() -> None:
        zone = timezone.get_current_timezone_name()
        seen.append((request_id.get(), translation.get_language(), zone))
        request_id.set("of a job")
        translation.activate("de")
        timezone.activate("Asia/Tokyo")

    request_id.set("of the caller")
    hall.action = spoil
    hall.add(10)
    hall.wait_for(10)
    assert set(seen) == {seen[0]}
    assert seen[0][0] == "none"


# --- a loop that is blocked


def test_blocked_loop_is_seen_while_jobs_wait_for_it(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UPKEEP_SECONDS", 0.01)
    [part] = [each for each in hall.slots.list_parts() if each.name == "event"]
    assert part.stalled_since == math.inf
    may_go_on = threading.Event()

    async def block_later() -> None:
        asyncio.get_running_loop().call_later(0.01, may_go_on.wait, 30)

    hall.action = block_later
    hall.add(1)
    hall.wait_for(1)
    time.sleep(0.05)
    # It may be blocked for any time while no job needs it.
    assert part.stalled_since == math.inf
    hall.action = lambda: asyncio.sleep(0)
    hall.add(1)
    before = part.stalled_since
    time.sleep(0.1)
    assert part.stalled_since == before < time.monotonic() - 0.1
    may_go_on.set()
    hall.wait_for(2)
    # It ticks beside a job that goes on.
    is_over = asyncio.Event()
    hall.action = is_over.wait
    hall.add(1)
    began = time.monotonic()
    wait_until(lambda: began < part.stalled_since < math.inf, pause=0.005)
    part._loop.call_soon_threadsafe(is_over.set)  # type: ignore[attr-defined]
    hall.wait_for(3)


def test_jobs_that_a_blocked_loop_has_not_taken_can_be_given_back(hall: Hall) -> None:
    may_go_on = block_loop(hall)
    [late] = hall.add(1)
    assert hall.slots.take_waiting(older_than=60) == []
    assert hall.slots.running == 2
    assert hall.slots.take_waiting() == [late]
    assert hall.slots.running == 1
    may_go_on.set()
    hall.wait_for(1)
    hall.add(3)
    hall.wait_for(4)
    assert late.claim.id not in {ending.claim.id for ending in hall.endings}


@pytest.mark.parametrize("is_interrupted", [True, False])
def test_executors_are_probed_once_a_job_was_interrupted(
    hall: Hall, monkeypatch: pytest.MonkeyPatch, is_interrupted: bool
) -> None:
    """Before that, those who keep them busy are jobs within their time."""
    monkeypatch.setattr(module, "UPKEEP_SECONDS", 0.01)
    looks: list[float] = []
    monkeypatch.setattr(
        hall.slots._coroutines.executors, "probe", lambda loop, now: looks.append(now)
    )
    if is_interrupted:
        hall.action = lambda: asyncio.sleep(30)
    [job] = hall.add(1)
    if is_interrupted:
        wait_until(lambda: job.task is not None, pause=0.001)
        job.interrupt(JobCancelled)
    hall.wait_for(1)
    if is_interrupted:
        wait_until(lambda: bool(looks), pause=0.005)
    else:
        time.sleep(0.05)
        assert not looks
    assert "executor" in [part.name for part in hall.slots.list_parts()]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_copy_of_the_process_runs_no_other_job_of_the_loop(hall: Hall) -> None:
    """Made by a handler with os.fork(); it ends at its next await."""
    reading, writing = os.pipe()
    copies: list[int] = []

    async def fork() -> None:
        is_first = not copies
        copies.append(0)
        if not is_first:
            os.write(writing, b"%d " % os.getpid())
        elif pid := os.fork():
            copies[0] = pid
        else:
            signal.alarm(10)
            await hall.slots._coroutines._stopping.wait()

    may_go_on = block_loop(hall)
    hall.slots.concurrency = 3
    hall.action = fork
    hall.add(2)
    may_go_on.set()
    hall.wait_for(3)
    assert os.waitstatus_to_exitcode(os.waitpid(copies[0], 0)[1]) == 1
    assert os.read(reading, 100) == b"%d " % os.getpid()
    os.close(reading)
    os.close(writing)
