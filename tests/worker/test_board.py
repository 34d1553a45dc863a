"""The memory that a supervisor shares with a child."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from django_jobqueue.lifecycle.beat import BeatReply
from django_jobqueue.lifecycle.claim import Claim
from django_jobqueue.worker.board import Board, Counts, Overrun, Stage

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_claim(id: int, *, lease_token: int = 7, attempt: int = 2) -> Claim:
    values: dict[str, Any] = dict.fromkeys(Claim._fields)
    values |= {"id": uuid.UUID(int=id), "lease_token": lease_token, "attempt": attempt}
    return Claim(**values | {"run_at": NOW, "claimed_at": NOW})


@pytest.fixture
def boards() -> tuple[Board, Board]:
    """Return the two ends of one board, as the supervisor and the child have them."""
    ours = Board(3)
    theirs = Board(3, fd=ours.fd)
    ours.close_file()
    return ours, theirs


def test_new_board_says_nothing(boards: tuple[Board, Board]) -> None:
    ours, _ = boards
    assert (ours.confirmed, ours.stage, ours.suspects_seen) == (0.0, Stage.STARTING, 0)
    assert ours.reply == BeatReply(False, False)
    assert ours.counts == Counts()
    assert not list(ours.read_inside())


def test_what_one_writes_the_other_reads(boards: tuple[Board, Board]) -> None:
    ours, theirs = boards
    ours.confirm(12.5, BeatReply(True, False))
    assert (theirs.confirmed, theirs.reply) == (12.5, BeatReply(True, False))

    counts = Counts(ticks=1, processed=2, failed=3, running=4)
    theirs.publish(counts)
    theirs.stage = Stage.READY
    theirs.tell_suspects()
    assert (ours.counts, ours.stage, ours.suspects_seen) == (counts, Stage.READY, 1)


def test_attempt_is_on_the_board_from_enter_to_leave(
    boards: tuple[Board, Board],
) -> None:
    ours, theirs = boards
    place = theirs.enter(make_claim(1), entered=1.0, limit=9.0, most=3)

    [inside] = ours.read_inside()
    assert (inside.id, inside.lease_token) == (uuid.UUID(int=1), 7)
    assert (inside.attempt, inside.max_attempts) == (2, 3)
    assert (inside.entered, inside.limit) == (1.0, 9.0)
    assert (inside.cause, inside.delay, inside.pids) == (Overrun.TIMEOUT, None, ())

    theirs.leave(place)
    assert not list(ours.read_inside())


def test_limit_says_when_how_and_whose_backends(boards: tuple[Board, Board]) -> None:
    ours, theirs = boards
    place = theirs.enter(make_claim(1), entered=1.0, limit=9.0, most=3)
    theirs.limit(place, 4.0, Overrun.CANCELLED, delay=2.5, pids=(11, 12, 13, 14, 15))

    [inside] = ours.read_inside()
    assert (inside.limit, inside.cause, inside.delay) == (4.0, Overrun.CANCELLED, 2.5)
    assert inside.pids == (11, 12, 13, 14)
    assert inside.lease_token == 7


def test_limit_of_one_attempt_is_not_that_of_the_next(
    boards: tuple[Board, Board],
) -> None:
    ours, theirs = boards
    for _ in range(4):
        place = theirs.enter(make_claim(1), entered=1.0, limit=9.0, most=3)
        theirs.limit(place, 4.0, Overrun.CANCELLED, delay=2.5, pids=(11,))
        theirs.leave(place)
    theirs.enter(make_claim(2), entered=2.0, limit=8.0, most=1)

    [inside] = ours.read_inside()
    assert (inside.limit, inside.cause, inside.pids) == (8.0, Overrun.TIMEOUT, ())


def test_expelled_attempt_is_told_apart_from_the_next_in_its_place(
    boards: tuple[Board, Board],
) -> None:
    ours, theirs = boards
    places = [
        theirs.enter(make_claim(id), entered=1.0, limit=9.0, most=3) for id in (1, 2, 3)
    ]
    first, *_ = ours.read_inside()
    ours.expel(first)

    assert [theirs.is_expelled(place) for place in places] == [True, False, False]
    assert [inside.is_expelled for inside in ours.read_inside()] == [True, False, False]

    theirs.leave(places[0])
    assert theirs.enter(make_claim(4), entered=1.0, limit=9.0, most=3) == places[0]
    assert not theirs.is_expelled(places[0])
