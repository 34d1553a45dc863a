"""The watchdog ends a process whose loops are stuck, and leaves others alone."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Iterator

import pytest

from django_jobqueue.storage.database import Database
from django_jobqueue.worker import loop as loop_module
from django_jobqueue.worker.health import bounded
from django_jobqueue.worker.health.watchdog import (
    EXIT_CODE,
    STUCK_TICKS,
    Watchdog,
    end_process,
)
from django_jobqueue.worker.loop import STUCK_SECONDS, Loop
from tests.waiting import wait_until


class Stage:
    """A loop whose step blocks, sleeps or dies as the test says."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.entered = threading.Event()
        self.delay = 60.0
        self.error: type[BaseException] | None = None
        self.loop = Loop("stage", self.step, alias="default")
        self.db = self.loop._db = Database(alias="default")
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

    stage.tick(STUCK_TICKS)
    assert stage.stuck == []
    stage.tick(1)

    assert stage.stuck == [stage.loop]


def test_a_loop_tells_by_itself_that_it_does_not_come_back(stage: Stage) -> None:
    assert not stage.loop.is_stuck(time.monotonic() + 2 * STUCK_SECONDS)
    stage.loop.start()
    stage.entered.wait()

    assert not stage.loop.is_stuck(time.monotonic())
    assert stage.loop.is_stuck(time.monotonic() + STUCK_SECONDS)
    stage.go_on.set()
    wait_until(lambda: stage.loop.is_asleep)
    assert not stage.loop.is_stuck(time.monotonic() + STUCK_SECONDS)


def test_a_loop_that_sleeps_is_not_stuck(stage: Stage) -> None:
    stage.go_on.set()
    stage.loop.start()
    wait_until(lambda: stage.loop.is_asleep)

    stage.tick(5 * STUCK_TICKS)

    assert stage.stuck == []


def test_a_loop_that_goes_round_is_not_stuck(stage: Stage) -> None:
    stage.go_on.set()
    stage.delay = 0.0
    stage.loop.start()

    for _ in range(3 * STUCK_TICKS):
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


def test_a_loop_whose_steps_fail_makes_no_progress(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "open_database", lambda alias, name: stage.db)
    monkeypatch.setattr(loop_module, "close_database", lambda db: None)
    stage.error = ValueError
    stage.go_on.set()
    assert stage.loop.stalled_since == math.inf
    before = time.monotonic()
    stage.loop.start()
    wait_until(lambda: stage.loop.failures > 2)
    assert before <= stage.loop.stalled_since < time.monotonic()
    assert stage.loop.is_curable

    stage.error = None
    wait_until(lambda: stage.loop.is_asleep and not stage.loop.failures)
    assert stage.loop.stalled_since == math.inf


def test_a_process_ends_also_where_nothing_can_be_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes: list[int] = []
    written: list[bytes] = []
    go_on = threading.Event()
    monkeypatch.setattr(bounded, "LOG_LINE_SECONDS", 0.05)
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(os, "write", lambda fd, text: written.append(text) or 0)
    logger = logging.getLogger("django_jobqueue.worker")
    monkeypatch.setattr(logger, "critical", lambda *args: go_on.wait())

    end_process("the claim loop is stuck")
    go_on.set()

    assert codes == [EXIT_CODE]
    [text] = written
    assert text.startswith(b"the claim loop is stuck; this process ends")
    assert b"Thread MainThread" in text
