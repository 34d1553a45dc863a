"""Who sits where, with children that are no processes."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobqueue.options import Options
from django_jobqueue.worker.board import Board, Counts, Stage
from django_jobqueue.worker.crew import Crew
from django_jobqueue.worker.seats import Seat


class StubChild:
    """A child that does what it is told, on its board."""

    def __init__(self) -> None:
        self.board = Board(1)
        self.board.stage = Stage.READY
        self.started = 0.0
        self.memory = 0
        self.is_leaving = False

    @property
    def stage(self) -> Stage:
        return self.board.stage

    def run_jobs(self, count: int) -> None:
        self.board.publish(Counts(running=count))

    def retire(self) -> None:
        self.is_leaving = True


class Hiring:
    """Starts children, and knows all of them."""

    def __init__(self) -> None:
        self.children: list[StubChild] = []

    def __call__(self, seat: Seat) -> Any:
        self.children.append(StubChild())
        return self.children[-1]

    def list_staying(self) -> list[StubChild]:
        return [child for child in self.children if not child.is_leaving]


@pytest.fixture
def hiring() -> Hiring:
    return Hiring()


def make_crew(hiring: Hiring, size: int, **options: Any) -> Crew:
    crew = Crew(Options(**options), size=size, start=hiring)
    crew.fill(0.0)
    return crew


def test_more_seats_are_filled(hiring: Hiring) -> None:
    crew = make_crew(hiring, 1)
    crew.fit(3)
    crew.fill(0.0)
    assert len(crew.list_children()) == len(hiring.children) == 3


def test_those_with_the_least_to_do_go(hiring: Hiring) -> None:
    crew = make_crew(hiring, 3)
    for child, running in zip(hiring.children, (2, 0, 1), strict=True):
        child.run_jobs(running)
    crew.fit(1)
    crew.fill(0.0)
    assert hiring.list_staying() == [hiring.children[0]]
    assert (crew.size, crew.count_running()) == (1, 2)
    # They are ours until they have ended.
    assert len(crew.list_children()) == 3


def test_one_that_is_being_replaced_does_not_go(hiring: Hiring) -> None:
    crew = make_crew(hiring, 2, max_jobs=1)
    hiring.children[0].board.publish(Counts(processed=1))
    crew.recycle()
    hiring.children[1].run_jobs(1)
    crew.fit(1)
    assert hiring.list_staying() == [hiring.children[0], hiring.children[2]]


def test_change_over_starts_nobody_before_the_last_has_ended(hiring: Hiring) -> None:
    crew = make_crew(hiring, 2, max_jobs=1)
    hiring.children[0].board.publish(Counts(processed=1))
    crew.recycle()
    old = list(hiring.children)
    assert len(old) == 3
    crew.change_over()
    assert hiring.list_staying() == []
    for child in old:
        crew.fill(0.0)
        assert hiring.children == old
        assert crew.remove(child, 0.0) is None  # type: ignore[arg-type]
    crew.fill(0.0)
    assert len(hiring.list_staying()) == 2
    assert len(hiring.children) == 5


def test_nobody_is_started_while_held_back_until_a_change_over(hiring: Hiring) -> None:
    crew = make_crew(hiring, 1)
    seat = crew.remove(hiring.children[0], 0.0)  # type: ignore[arg-type]
    assert seat is not None
    crew.is_held_back = True
    crew.fill(1e9)
    assert len(hiring.children) == 1
    crew.change_over()
    crew.fill(0.0)
    assert len(hiring.children) == 2


def test_one_that_ended_unasked_leaves_its_seat_to_its_successor(
    hiring: Hiring,
) -> None:
    crew = make_crew(hiring, 1, max_jobs=1)
    hiring.children[0].board.publish(Counts(processed=1))
    crew.recycle()
    seat = crew.remove(hiring.children[0], 0.0)  # type: ignore[arg-type]
    assert seat is not None
    assert (seat.child, seat.successor) == (hiring.children[1], None)
