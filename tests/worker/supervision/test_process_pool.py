"""The slots of a supervisor, with children that have no process."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobqueue.options import Options
from django_jobqueue.worker.supervision.memory_values import Counts, Stage
from django_jobqueue.worker.supervision.process_pool import ProcessPool, ProcessSlot
from django_jobqueue.worker.supervision.shared_memory import SharedMemory


class StubChild:
    """A child without a process; its shared memory says what it does."""

    def __init__(self) -> None:
        self.shared_memory = SharedMemory(1)
        self.shared_memory.stage = Stage.READY
        self.started = 0.0
        self.memory = 0
        self.is_leaving = False

    @property
    def stage(self) -> Stage:
        return self.shared_memory.stage

    def run_jobs(self, count: int) -> None:
        self.shared_memory.publish(Counts(running=count))

    def retire(self) -> None:
        self.is_leaving = True


class Starter:
    """Starts children, and keeps a list of them."""

    def __init__(self) -> None:
        self.children: list[StubChild] = []
        self.is_failing = False
        self.tries = 0

    def __call__(self, slot: ProcessSlot) -> Any:
        self.tries += 1
        if self.is_failing:
            return None
        self.children.append(StubChild())
        return self.children[-1]

    def list_active(self) -> list[StubChild]:
        return [child for child in self.children if not child.is_leaving]


@pytest.fixture
def starter() -> Starter:
    return Starter()


def make_pool(starter: Starter, size: int, **options: Any) -> ProcessPool:
    pool = ProcessPool(Options(**options), size=size, start=starter)
    pool.fill(0.0)
    return pool


def test_added_slots_are_filled(starter: Starter) -> None:
    pool = make_pool(starter, 1)
    pool.fit(3)
    pool.fill(0.0)
    assert len(pool.list_children()) == len(starter.children) == 3


def test_children_with_the_fewest_running_jobs_retire(starter: Starter) -> None:
    pool = make_pool(starter, 3)
    for child, running in zip(starter.children, (2, 0, 1), strict=True):
        child.run_jobs(running)
    pool.fit(1)
    pool.fill(0.0)
    assert starter.list_active() == [starter.children[0]]
    assert (pool.size, pool.count_running()) == (1, 2)
    # Retiring children stay in the pool until they have ended.
    assert len(pool.list_children()) == 3


def test_a_child_that_is_being_replaced_does_not_retire(starter: Starter) -> None:
    pool = make_pool(starter, 2, max_jobs=1)
    starter.children[0].shared_memory.publish(Counts(processed=1))
    pool.recycle(0.0)
    starter.children[1].run_jobs(1)
    pool.fit(1)
    assert starter.list_active() == [starter.children[0], starter.children[2]]


def test_change_over_starts_no_child_before_the_last_has_ended(
    starter: Starter,
) -> None:
    pool = make_pool(starter, 2, max_jobs=1)
    starter.children[0].shared_memory.publish(Counts(processed=1))
    pool.recycle(0.0)
    old = list(starter.children)
    assert len(old) == 3
    pool.change_over()
    assert starter.list_active() == []
    for child in old:
        pool.fill(0.0)
        assert starter.children == old
        assert pool.remove(child, 0.0) is None  # type: ignore[arg-type]
    pool.fill(0.0)
    assert len(starter.list_active()) == 2
    assert len(starter.children) == 5


def test_no_child_starts_while_held_back_until_a_change_over(starter: Starter) -> None:
    pool = make_pool(starter, 1)
    slot = pool.remove(starter.children[0], 0.0)  # type: ignore[arg-type]
    assert slot is not None
    pool.is_held_back = True
    pool.fill(1e9)
    assert len(starter.children) == 1
    pool.change_over()
    pool.fill(0.0)
    assert len(starter.children) == 2


def test_a_child_that_ended_unasked_leaves_its_slot_to_its_successor(
    starter: Starter,
) -> None:
    pool = make_pool(starter, 1, max_jobs=1)
    starter.children[0].shared_memory.publish(Counts(processed=1))
    pool.recycle(0.0)
    slot = pool.remove(starter.children[0], 0.0)  # type: ignore[arg-type]
    assert slot is not None
    assert (slot.child, slot.successor) == (starter.children[1], None)


def test_a_child_that_cannot_be_spawned_is_tried_again_with_growing_pauses(
    starter: Starter,
) -> None:
    pool = make_pool(starter, 2)
    starter.is_failing = True
    pool.remove(starter.children[0], 100.0)  # type: ignore[arg-type]
    for step in range(80):
        pool.fill(100.0 + step / 4)
    assert pool.list_children() == [starter.children[1]]
    assert 5 <= starter.tries - 2 <= 10
    starter.is_failing = False
    pool.fill(130.0)
    assert len(pool.list_children()) == 2


@pytest.mark.parametrize("is_spawned", [True, False], ids=["broken", "not spawned"])
def test_a_successor_that_fails_is_tried_again_with_growing_pauses(
    starter: Starter, is_spawned: bool
) -> None:
    pool = make_pool(starter, 1, max_jobs=1)
    starter.children[0].shared_memory.publish(Counts(processed=1))
    starter.is_failing = not is_spawned
    for step in range(80):
        now = 100.0 + step / 4
        pool.recycle(now)
        for child in starter.children[1:]:
            if child in pool.list_children():
                child.started = now
                pool.remove(child, now)  # type: ignore[arg-type]
    assert 5 <= starter.tries - 1 <= 10
    assert pool.list_children() == [starter.children[0]]
