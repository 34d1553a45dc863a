"""The memory that a supervisor shares with a child."""

from __future__ import annotations

import struct
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from django_jobqueue.storage.claims import Claim
from django_jobqueue.storage.worker_rows import BeatReply
from django_jobqueue.worker.supervision import shared_memory as module
from django_jobqueue.worker.supervision.memory_values import (
    Counts,
    InterruptReason,
    Stage,
    Stall,
)
from django_jobqueue.worker.supervision.shared_memory import SharedMemory

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_claim(id: int, *, lease_token: int = 7, attempt: int = 2) -> Claim:
    values: dict[str, Any] = dict.fromkeys(Claim._fields)
    values |= {"id": uuid.UUID(int=id), "lease_token": lease_token, "attempt": attempt}
    return Claim(**values | {"run_at": NOW, "claimed_at": NOW})


@pytest.fixture
def memories() -> tuple[SharedMemory, SharedMemory]:
    """Return the memory as the supervisor and as the child have it."""
    ours = SharedMemory(3)
    theirs = SharedMemory(3, fd=ours.fd)
    ours.close_file()
    return ours, theirs


def test_new_memory_is_empty(memories: tuple[SharedMemory, SharedMemory]) -> None:
    ours, _ = memories
    assert (ours.confirmed, ours.stage, ours.suspects_seen) == (0.0, Stage.STARTING, 0)
    assert ours.reply == BeatReply(False, False)
    assert ours.counts == Counts()
    assert not list(ours.read_running())


def test_what_one_writes_the_other_reads(
    memories: tuple[SharedMemory, SharedMemory],
) -> None:
    ours, theirs = memories
    ours.confirm(12.5, BeatReply(True, False))
    assert (theirs.confirmed, theirs.reply) == (12.5, BeatReply(True, False))

    counts = Counts(ticks=1, processed=2, failed=3, running=4)
    theirs.publish(counts)
    theirs.stage = Stage.READY
    theirs.flag_suspects()
    assert (ours.counts, ours.stage, ours.suspects_seen) == (counts, Stage.READY, 1)


def test_attempt_has_a_place_from_enter_to_leave(
    memories: tuple[SharedMemory, SharedMemory],
) -> None:
    ours, theirs = memories
    place = theirs.enter(make_claim(1), entered=1.0, limit=9.0, most=3)

    [attempt] = ours.read_running()
    assert (attempt.id, attempt.lease_token) == (uuid.UUID(int=1), 7)
    assert (attempt.attempt, attempt.max_attempts) == (2, 3)
    assert (attempt.entered, attempt.limit) == (1.0, 9.0)
    assert (attempt.cause, attempt.delay, attempt.pids) == (
        InterruptReason.TIMEOUT,
        None,
        (),
    )

    theirs.leave(place)
    assert not list(ours.read_running())


def test_limit_says_when_how_and_whose_backends(
    memories: tuple[SharedMemory, SharedMemory],
) -> None:
    ours, theirs = memories
    place = theirs.enter(make_claim(1), entered=1.0, limit=9.0, most=3)
    theirs.limit(
        place, 4.0, InterruptReason.CANCELLED, delay=2.5, pids=(11, 12, 13, 14, 15)
    )

    [attempt] = ours.read_running()
    assert (attempt.limit, attempt.cause, attempt.delay) == (
        4.0,
        InterruptReason.CANCELLED,
        2.5,
    )
    assert attempt.pids == (11, 12, 13, 14)
    assert attempt.lease_token == 7


def test_limit_of_one_attempt_is_not_that_of_the_next(
    memories: tuple[SharedMemory, SharedMemory],
) -> None:
    ours, theirs = memories
    for _ in range(4):
        place = theirs.enter(make_claim(1), entered=1.0, limit=9.0, most=3)
        theirs.limit(place, 4.0, InterruptReason.CANCELLED, delay=2.5, pids=(11,))
        theirs.leave(place)
    theirs.enter(make_claim(2), entered=2.0, limit=8.0, most=1)

    [attempt] = ours.read_running()
    assert (attempt.limit, attempt.cause, attempt.pids) == (
        8.0,
        InterruptReason.TIMEOUT,
        (),
    )


def test_attempt_ended_by_the_supervisor_differs_from_the_next_in_its_place(
    memories: tuple[SharedMemory, SharedMemory],
) -> None:
    ours, theirs = memories
    places = [
        theirs.enter(make_claim(id), entered=1.0, limit=9.0, most=3) for id in (1, 2, 3)
    ]
    first, *_ = ours.read_running()
    ours.mark_ended_by_supervisor(first)

    assert [theirs.is_ended_by_supervisor(place) for place in places] == [
        True,
        False,
        False,
    ]
    assert [attempt.is_ended_by_supervisor for attempt in ours.read_running()] == [
        True,
        False,
        False,
    ]

    theirs.leave(places[0])
    assert theirs.enter(make_claim(4), entered=1.0, limit=9.0, most=3) == places[0]
    assert not theirs.is_ended_by_supervisor(places[0])


def test_attempts_are_kept_until_they_are_forgotten(
    memories: tuple[SharedMemory, SharedMemory],
) -> None:
    ours, theirs = memories
    number = theirs.keep(make_claim(1))
    assert number is not None
    assert ours.read_kept() == {(uuid.UUID(int=1), 7)}
    theirs.forget(number)
    assert not ours.read_kept()


def test_memory_is_full_before_a_running_attempt_could_not_be_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "KEPT_ATTEMPTS", 5)
    shared_memory = SharedMemory(3)
    shared_memory.close_file()
    numbers = [shared_memory.keep(make_claim(id)) for id in range(1, 6)]
    assert not shared_memory.is_full
    numbers.append(shared_memory.keep(make_claim(6)))
    assert shared_memory.is_full
    # Two more may be attempt.
    assert None not in [shared_memory.keep(make_claim(id)) for id in (7, 8)]
    assert len(shared_memory.read_kept()) == 8
    for number in numbers[:3]:
        assert number is not None
        shared_memory.forget(number)
    assert not shared_memory.is_full


def test_child_publishes_its_stall_and_its_end(
    memories: tuple[SharedMemory, SharedMemory],
) -> None:
    ours, theirs = memories
    assert (ours.stall, ours.has_ended) == (None, False)
    for part in ("finish", "logging", "maintenance"):
        stall = Stall(part=part, since=12.5, is_curable=part != "finish")
        theirs.publish_stall(stall)
        assert ours.stall == stall
    theirs.publish_stall(None)
    theirs.mark_ended()
    assert (ours.stall, ours.has_ended) == (None, True)


def test_an_attempt_that_does_not_fit_costs_no_place() -> None:
    shared_memory = SharedMemory(1)
    bad = make_claim(1, attempt=1 << 40)
    with pytest.raises(struct.error):
        shared_memory.enter(bad, entered=0.0, limit=1.0, most=1)
    assert shared_memory.enter(make_claim(2), entered=0.0, limit=1.0, most=1) == 0
