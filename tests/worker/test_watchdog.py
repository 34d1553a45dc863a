"""The watchdog ends a process whose loops are stuck, and leaves others alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from django_jobqueue.lifecycle.database import Database
from django_jobqueue.worker.loop import STUCK, Loop
from django_jobqueue.worker.watchdog import PATIENCE, Watchdog
from tests.waiting import wait_until


class Stage:
    """A loop whose step blocks, sleeps or dies as the test says."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.entered = threading.Event()
        self.delay = 60.0
        self.error: type[BaseException] | None = None
        self.loop = Loop("stage", self.step, alias="default")
        self.loop._db = Database(alias="default")
        self.stuck: list[Loop] = []
        self.watchdog = Watchdog([self.loop], on_stuck=self.stuck.append)

    def step(self, db: Database) -> float:
        self.entered.set()
        self.go_on.wait()
        if self.error is not None:
            raise self.error
        return self.delay

    def tick(self, count: int) -> None:
        for _ in range(count):
            self.watchdog.tick()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.go_on.set()
    made.loop._db = None
    made.loop.stop()
    made.loop.join(10)


def test_a_loop_that_does_not_come_back_from_its_step_is_stuck(stage: Stage) -> None:
    stage.loop.start()
    stage.entered.wait()

    stage.tick(PATIENCE)
    assert stage.stuck == []
    stage.tick(1)

    assert stage.stuck == [stage.loop]


def test_a_loop_tells_by_itself_that_it_does_not_come_back(stage: Stage) -> None:
    assert not stage.loop.is_stuck(time.monotonic() + 2 * STUCK)
    stage.loop.start()
    stage.entered.wait()

    assert not stage.loop.is_stuck(time.monotonic())
    assert stage.loop.is_stuck(time.monotonic() + STUCK)
    stage.go_on.set()
    wait_until(lambda: stage.loop.is_asleep)
    assert not stage.loop.is_stuck(time.monotonic() + STUCK)


def test_a_loop_that_sleeps_is_not_stuck(stage: Stage) -> None:
    stage.go_on.set()
    stage.loop.start()
    wait_until(lambda: stage.loop.is_asleep)

    stage.tick(5 * PATIENCE)

    assert stage.stuck == []


def test_a_loop_that_goes_round_is_not_stuck(stage: Stage) -> None:
    stage.go_on.set()
    stage.delay = 0.0
    stage.loop.start()

    for _ in range(3 * PATIENCE):
        steps = stage.loop.steps
        wait_until(lambda steps=steps: stage.loop.steps > steps, pause=0.001)
        stage.tick(1)

    assert stage.stuck == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_whose_thread_has_died_is_found_at_the_next_tick(stage: Stage) -> None:
    stage.error = KeyboardInterrupt
    stage.go_on.set()
    stage.loop.start()
    wait_until(lambda: stage.loop.is_dead)
    assert stage.loop.is_stuck(time.monotonic())

    stage.tick(1)

    assert stage.stuck == [stage.loop]
