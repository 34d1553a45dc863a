"""What a worker holds, and how a running attempt is told something."""

import asyncio
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from django_jobqueue.exceptions import JobCancelled, JobTimeout
from django_jobqueue.lifecycle.claim import Claim
from django_jobqueue.worker.board import KEPT, Board
from django_jobqueue.worker.held import HeldJob, HeldJobs

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_claim(id: int = 1, *, lease_token: int = 1) -> Claim:
    values: dict[str, Any] = dict.fromkeys(Claim._fields)
    values |= {"id": uuid.UUID(int=id), "lease_token": lease_token, "attempt": 1}
    return Claim(**values | {"run_at": NOW, "claimed_at": NOW})


def spin(until: Callable[[], bool]) -> None:
    """Run bytecode, where an exception can arrive, until something is so."""
    deadline = time.monotonic() + 30
    while not until():
        assert time.monotonic() < deadline


def test_claims_are_held_until_they_are_removed() -> None:
    held = HeldJobs()
    claims = [make_claim(1), make_claim(2)]
    jobs = held.add(claims)
    assert [job.claim for job in jobs] == claims
    assert len(held) == 2
    assert held.find(claims[0].id) is jobs[0]
    assert held.list() == jobs
    held.remove(claims[:1])
    assert held.find(claims[0].id) is None
    assert held.list() == jobs[1:]


def test_removing_what_is_not_held_is_no_error() -> None:
    held = HeldJobs()
    held.remove([make_claim()])
    assert len(held) == 0


def test_older_claim_does_not_remove_the_newer_one() -> None:
    held = HeldJobs()
    [newer] = held.add([make_claim(lease_token=2)])
    held.remove([make_claim(lease_token=1)])
    assert held.list() == [newer]


def test_attempt_that_may_not_start_again_is_kept_until_its_end_is_written() -> None:
    board = Board(2)
    held = HeldJobs(board)
    last, other = held.add([make_claim(1), make_claim(2)])
    last.enter(timeout=60, most=1)
    other.enter(timeout=60, most=3)
    assert board.read_kept() == set()
    last.leave()
    other.leave()
    assert not list(board.read_inside())
    assert board.read_kept() == {(last.claim.id, 1)}
    held.remove([last.claim, other.claim])
    assert board.read_kept() == set()
    board.close_file()


def test_board_without_room_keeps_nothing_more() -> None:
    board = Board(1)
    claims = [make_claim(number) for number in range(1, KEPT + 2)]
    numbers = [board.keep(claim) for claim in claims]
    assert numbers[-1] is None
    assert numbers[0] is not None
    board.forget(numbers[0])
    assert board.keep(claims[-1]) is not None
    assert board.read_kept() == {(claim.id, 1) for claim in claims[1:]}
    board.close_file()


def test_job_that_has_not_started_cannot_be_interrupted() -> None:
    held = HeldJob(make_claim())
    assert held.interrupt(JobCancelled) is False
    assert held.interruption is None


def test_entering_notes_start_and_deadline() -> None:
    held = HeldJob(make_claim())
    before = time.monotonic()
    held.enter(timeout=60)
    assert held.started is not None
    assert before <= held.started <= time.monotonic()
    assert held.deadline == held.started + 60
    assert held.thread == threading.get_ident()
    held.leave()
    assert (held.thread, held.deadline) == (None, None)
    assert held.started >= before


@pytest.mark.parametrize("cause", [JobTimeout, JobCancelled])
def test_interruption_is_raised_inside_the_handler(cause: Any) -> None:
    held = HeldJob(make_claim())
    inside = threading.Event()

    def run() -> BaseException | None:
        held.enter(timeout=60)
        try:
            try:
                inside.set()
                spin(lambda: False)
            finally:
                held.leave()
        except BaseException as error:
            return error
        return None

    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(run)
        assert inside.wait(30)
        assert held.interrupt(cause) is True
        assert type(future.result(30)) is cause
    assert held.interruption is cause


def test_handler_is_interrupted_once() -> None:
    held = HeldJob(make_claim())
    inside, caught_once = threading.Event(), threading.Event()
    interrupted_again = threading.Event()

    def run() -> list[BaseException]:
        caught: list[BaseException] = []
        held.enter(timeout=60)
        try:
            try:
                inside.set()
                spin(lambda: False)
            except JobTimeout as error:
                caught.append(error)
                caught_once.set()
                # It goes on all the same: a second one must not arrive.
                spin(interrupted_again.is_set)
            finally:
                held.leave()
        except BaseException as error:
            caught.append(error)
        return caught

    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(run)
        assert inside.wait(30)
        assert held.interrupt(JobTimeout) is True
        assert caught_once.wait(30)
        assert held.interrupt(JobCancelled) is False
        interrupted_again.set()
        assert [type(error) for error in future.result(30)] == [JobTimeout]
    assert held.interruption is JobTimeout


def test_handler_that_has_returned_is_not_interrupted() -> None:
    held = HeldJob(make_claim())
    held.enter(timeout=60)
    held.leave()
    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(held.interrupt, JobTimeout).result(30) is False
    spin(lambda: True)
    assert held.interruption is None


def test_leaving_twice_is_no_error() -> None:
    held = HeldJob(make_claim())
    held.enter(timeout=60)
    held.leave()
    held.leave()
    assert held.thread is None


def test_interruption_never_lands_after_leaving() -> None:
    rounds = 100
    late: list[BaseException] = []
    current: list[HeldJob] = []
    done = threading.Event()

    def run() -> None:
        for n in range(rounds):
            held = HeldJob(make_claim(n))
            try:
                current[:] = [held]
                try:
                    held.enter(timeout=60)
                    try:
                        spin(lambda held=held: held.interruption is not None)  # type: ignore[misc]
                    finally:
                        held.leave()
                except JobTimeout:
                    held.leave()
                sum(range(200))
            except JobTimeout as error:
                late.append(error)
        done.set()

    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(run)
        while not done.is_set() and not future.done():
            for held in list(current):
                held.interrupt(JobTimeout)
        future.result(60)
    assert late == []


def test_task_is_cancelled() -> None:
    async def run() -> HeldJob:
        held = HeldJob(make_claim())
        started = asyncio.Event()

        async def handle() -> None:
            started.set()
            await asyncio.Event().wait()

        held.task = asyncio.create_task(handle())
        await started.wait()
        told = await asyncio.to_thread(held.interrupt, JobTimeout)
        assert told is True
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(held.task, 30)
        return held

    held = asyncio.run(run())
    assert held.interruption is JobTimeout
    assert held.interrupt(JobCancelled) is False
