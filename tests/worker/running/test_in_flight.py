"""Jobs in flight: how a running attempt is interrupted, and what is kept of it."""

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
from django_jobqueue.storage.claims import Claim
from django_jobqueue.worker.running.in_flight import (
    InFlightJob,
    InFlightJobs,
)
from django_jobqueue.worker.running.memory_place import AROUND_HANDLER_SECONDS
from django_jobqueue.worker.supervision.memory_values import InterruptReason
from django_jobqueue.worker.supervision.shared_memory import KEPT_ATTEMPTS, SharedMemory
from tests.waiting import wait_until

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
    in_flight = InFlightJobs()
    claims = [make_claim(1), make_claim(2)]
    jobs = in_flight.add(claims)
    assert [job.claim for job in jobs] == claims
    assert len(in_flight) == 2
    assert in_flight.find(claims[0].id) is jobs[0]
    assert in_flight.list() == jobs
    in_flight.remove(claims[:1])
    assert in_flight.find(claims[0].id) is None
    assert in_flight.list() == jobs[1:]


def test_removing_what_is_not_held_is_no_error() -> None:
    in_flight = InFlightJobs()
    in_flight.remove([make_claim()])
    assert len(in_flight) == 0


def test_older_claim_does_not_remove_the_newer_one() -> None:
    in_flight = InFlightJobs()
    [newer] = in_flight.add([make_claim(lease_token=2)])
    in_flight.remove([make_claim(lease_token=1)])
    assert in_flight.list() == [newer]


def test_attempt_that_may_not_start_again_is_kept_until_its_end_is_written() -> None:
    shared_memory = SharedMemory(2)
    in_flight = InFlightJobs(shared_memory)
    last, other = in_flight.add([make_claim(1), make_claim(2)])
    last.enter(timeout=60, most=1)
    other.enter(timeout=60, most=3)
    assert shared_memory.read_kept() == set()
    last.leave()
    other.leave()
    assert shared_memory.read_kept() == {(last.claim.id, 1)}
    in_flight.remove([last.claim, other.claim])
    assert shared_memory.read_kept() == set()
    shared_memory.close_file()


def test_board_without_room_keeps_nothing_more() -> None:
    shared_memory = SharedMemory(1)
    claims = [make_claim(number) for number in range(1, KEPT_ATTEMPTS + 3)]
    numbers = [shared_memory.keep(claim) for claim in claims]
    assert numbers[-1] is None
    assert numbers[0] is not None
    shared_memory.forget(numbers[0])
    assert shared_memory.keep(claims[-1]) is not None
    assert shared_memory.read_kept() == {(claim.id, 1) for claim in claims[1:]}
    shared_memory.close_file()


def test_job_that_has_not_started_cannot_be_interrupted() -> None:
    job = InFlightJob(make_claim())
    assert job.interrupt(JobCancelled) is False
    assert job.interruption is None


def test_entering_notes_start_and_deadline() -> None:
    job = InFlightJob(make_claim())
    before = time.monotonic()
    job.enter(timeout=60)
    assert job.started is not None
    assert before <= job.started <= time.monotonic()
    assert job.deadline == job.started + 60
    assert job.thread == threading.get_ident()
    job.leave()
    assert (job.thread, job.deadline) == (None, None)
    assert job.started >= before


@pytest.mark.parametrize("cause", [JobTimeout, JobCancelled])
def test_interruption_is_raised_inside_the_handler(cause: Any) -> None:
    job = InFlightJob(make_claim())
    inside = threading.Event()

    def run() -> BaseException | None:
        job.enter(timeout=60)
        try:
            try:
                inside.set()
                spin(lambda: False)
            finally:
                job.leave()
        except BaseException as error:
            return error
        return None

    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(run)
        assert inside.wait(30)
        assert job.interrupt(cause) is True
        wait_until(job.deliver, pause=0.001)
        assert type(future.result(30)) is cause
    assert job.interruption is cause


def test_handler_is_interrupted_once() -> None:
    job = InFlightJob(make_claim())
    inside, caught_once = threading.Event(), threading.Event()
    interrupted_again = threading.Event()

    def run() -> list[BaseException]:
        caught: list[BaseException] = []
        job.enter(timeout=60)
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
                job.leave()
        except BaseException as error:
            caught.append(error)
        return caught

    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(run)
        assert inside.wait(30)
        assert job.interrupt(JobTimeout) is True
        wait_until(job.deliver, pause=0.001)
        assert caught_once.wait(30)
        assert job.interrupt(JobCancelled) is False
        interrupted_again.set()
        assert [type(error) for error in future.result(30)] == [JobTimeout]
    assert job.interruption is JobTimeout


def test_handler_that_has_returned_is_not_interrupted() -> None:
    job = InFlightJob(make_claim())
    job.enter(timeout=60)
    job.leave()
    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(job.interrupt, JobTimeout).result(30) is False
    spin(lambda: True)
    assert job.interruption is None


def test_leaving_twice_is_no_error() -> None:
    job = InFlightJob(make_claim())
    job.enter(timeout=60)
    job.leave()
    job.leave()
    assert job.thread is None


def test_interruption_never_lands_after_leaving() -> None:
    rounds = 100
    late: list[BaseException] = []
    current: list[InFlightJob] = []
    done = threading.Event()

    def run() -> None:
        for n in range(rounds):
            job = InFlightJob(make_claim(n))
            try:
                current[:] = [job]
                try:
                    job.enter(timeout=60)
                    try:
                        spin(lambda job=job: job.interruption is not None)  # type: ignore[misc]
                    finally:
                        job.leave()
                except JobTimeout:
                    job.leave()
                sum(range(200))
            except JobTimeout as error:
                late.append(error)
        done.set()

    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(run)
        while not done.is_set() and not future.done():
            for job in list(current):
                job.interrupt(JobTimeout)
                job.deliver()
        future.result(60)
    assert late == []


def test_task_is_cancelled() -> None:
    async def run() -> InFlightJob:
        job = InFlightJob(make_claim())
        started = asyncio.Event()

        async def handle() -> None:
            started.set()
            await asyncio.Event().wait()

        job.task = asyncio.create_task(handle())
        await started.wait()
        is_inside = await asyncio.to_thread(job.interrupt, JobTimeout)
        assert is_inside is True
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(job.task, 30)
        return job

    job = asyncio.run(run())
    assert job.interruption is JobTimeout
    assert job.interrupt(JobCancelled) is False


# --- the place of an attempt


def test_attempt_has_a_place_and_a_limit_before_and_after_its_handler() -> None:
    shared_memory = SharedMemory(1)
    [job] = InFlightJobs(shared_memory, grace=5.0).add([make_claim()])
    job.reserve(most=3)
    [before] = shared_memory.read_running()
    assert before.cause is InterruptReason.OUTSIDE
    assert before.limit == pytest.approx(before.entered + 5 + AROUND_HANDLER_SECONDS)
    job.enter(timeout=60, most=1)
    [inside] = shared_memory.read_running()
    assert (inside.place, inside.sequence) == (before.place, before.sequence)
    assert inside.max_attempts == 1
    assert inside.limit == pytest.approx(inside.entered + 65)
    job.leave()
    job.leave()
    [after] = shared_memory.read_running()
    assert after.limit == pytest.approx(
        time.monotonic() + 5 + AROUND_HANDLER_SECONDS, abs=2
    )
    assert after.max_attempts == 1
    # Atomic handlers run again in the same attempt.
    job.enter(timeout=50, most=1)
    [again] = shared_memory.read_running()
    assert again.limit == pytest.approx(again.entered + 55)
    job.leave()
    job.free()
    assert not list(shared_memory.read_places())
    assert len(shared_memory.read_kept()) == 1
    job.forget()
    assert not shared_memory.read_kept()
    shared_memory.close_file()


def test_time_before_the_handler_does_not_shorten_its_limit() -> None:
    shared_memory = SharedMemory(1)
    [job] = InFlightJobs(shared_memory, grace=5.0).add([make_claim()])
    job.reserve(most=3, cause=InterruptReason.TIDYING)
    # A crash of the process now is not charged to it: it has not started.
    assert (
        len(list(shared_memory.read_places())),
        list(shared_memory.read_running()),
    ) == (1, [])
    job.enter(timeout=90, most=3)
    [inside] = shared_memory.read_running()
    assert inside.limit == pytest.approx(inside.entered + 95)
    job.free()
    shared_memory.close_file()
