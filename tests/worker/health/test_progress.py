"""What counts as progress, and how long a part may go without it."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator

import pytest

from django_jobqueue.worker.health import progress as module
from django_jobqueue.worker.health.progress import (
    LATE_TICKS,
    TICK_SECONDS,
    UNWELL_SECONDS,
    Health,
)
from django_jobqueue.worker.supervision.memory_values import BROKEN_LOG, Stall
from tests.waiting import wait_until

BEAT = 5.0


class StubLoop:
    name = "finish"
    stalled_since = math.inf
    is_curable = True

    def note_progress(self, now: float) -> None:
        self.stalled_since = now


class CheckedWorker:
    """A worker with one loop, whose beats are confirmed as the test says."""

    def __init__(self) -> None:
        self.loop = StubLoop()
        self.confirmed = 0.0
        self.written = 0
        self.seen: Stall | None = None
        self.health = Health(
            [self.loop],  # type: ignore[list-item]
            interval=BEAT,
            read_confirmed=lambda: self.confirmed,
            on_check=self.note,
            counters={self.loop: lambda: self.written},  # type: ignore[dict-item]
        )

    def note(self, stall: Stall | None) -> None:
        self.seen = stall

    def live(self, since: float, until: float, *, has_database: bool = True) -> None:
        """Let time pass, beat by beat."""
        now = since
        while now <= until:
            if has_database:
                self.confirmed = now
            self.health.check(now)
            now += BEAT


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> CheckedWorker:
    monkeypatch.setattr(module, "LOCK_WAIT_SECONDS", 0.01)
    made = CheckedWorker()
    made.live(100, 200)
    return made


def test_an_idle_worker_has_no_stall(checked: CheckedWorker) -> None:
    assert checked.seen is None


def test_a_loop_that_gets_nothing_done_is_unwell_after_a_while(
    checked: CheckedWorker,
) -> None:
    checked.loop.stalled_since = 200.0
    checked.live(205, 200 + UNWELL_SECONDS - 1)
    assert checked.seen is None
    checked.live(200 + UNWELL_SECONDS, 200 + UNWELL_SECONDS)
    assert checked.seen == Stall(part="finish", since=200.0, is_curable=True)
    assert checked.seen.describe(241.0, pid=7) == (
        "the finish loop of process 7 has made no progress for 41 s"
    )
    checked.loop.stalled_since = math.inf
    checked.live(300, 300)
    assert checked.seen is None


def test_a_long_step_that_gets_something_done_is_well(checked: CheckedWorker) -> None:
    checked.loop.stalled_since = 200.0
    for moment in range(205, 300, 5):
        checked.written += 1
        checked.live(moment, moment)
        assert checked.seen is None
    checked.live(300, 300 + UNWELL_SECONDS)
    assert checked.seen is not None


def test_an_outage_of_the_database_is_no_reason(checked: CheckedWorker) -> None:
    checked.loop.stalled_since = 200.0
    checked.live(205, 800, has_database=False)
    assert checked.seen is None
    # It is back, and the loop has not noticed yet.
    checked.live(805, 805 + UNWELL_SECONDS - 1)
    assert checked.seen is None
    checked.live(805 + UNWELL_SECONDS, 805 + UNWELL_SECONDS)
    assert checked.seen is not None


def test_a_loop_that_the_database_refuses_is_unwell_but_not_to_be_replaced(
    checked: CheckedWorker,
) -> None:
    checked.loop.stalled_since, checked.loop.is_curable = 200.0, False
    checked.live(205, 250)
    assert checked.seen is not None
    assert not checked.seen.is_curable


def test_time_in_which_the_process_could_not_run_does_not_count(
    checked: CheckedWorker,
) -> None:
    checked.loop.stalled_since = 200.0
    checked.health.forgive(300.0)
    checked.live(300, 300 + UNWELL_SECONDS - 1)
    assert checked.seen is None
    assert LATE_TICKS * TICK_SECONDS < UNWELL_SECONDS


@pytest.fixture
def locked() -> Iterator[logging.Handler]:
    """A log handler whose lock was left taken by a thread that is gone."""
    handler = logging.NullHandler()
    # NullHandler has none.
    handler.lock = threading.RLock()
    logger = logging.getLogger("tests.locked")
    logger.addHandler(handler)
    thread = threading.Thread(target=handler.acquire)
    thread.start()
    thread.join()
    yield handler
    logger.removeHandler(handler)
    handler.lock = None


def test_a_log_handler_whose_lock_cannot_be_acquired_is_a_stall(
    locked: logging.Handler, checked: CheckedWorker
) -> None:
    # Whatever the database does.
    checked.health.forgive(200.0)
    checked.live(200, 200 + UNWELL_SECONDS - 1, has_database=False)
    assert checked.seen is None
    checked.live(200 + UNWELL_SECONDS, 200 + UNWELL_SECONDS, has_database=False)
    assert checked.seen == Stall(part="logging", since=200.0, is_curable=True)
    locked.lock = threading.RLock()
    checked.live(300, 300)
    assert checked.seen is None


def test_a_worker_whose_log_is_broken_is_unwell_at_once(checked: CheckedWorker) -> None:
    checked.health.note_broken_log()
    assert checked.seen is not None
    assert checked.seen.is_curable
    since = checked.seen.since
    assert checked.seen.describe(since + 3, pid=7) == (
        "logging of process 7 is broken for 3 s"
    )
    checked.live(300, 310)
    assert checked.seen == Stall(part=BROKEN_LOG, since=since, is_curable=True)


def test_the_thread_forgives_after_a_pause(
    checked: CheckedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TICK_SECONDS", 0.001)
    monkeypatch.setattr(module, "LATE_TICKS", -1)
    checked.loop.stalled_since = 200.0
    checked.confirmed = 205.0
    checks = threading.Event()
    monkeypatch.setattr(checked.health, "_on_check", lambda stall: checks.set())
    checked.health.start()
    wait_until(checks.is_set)
    checked.health.stop()
    assert checked.health._counted_from > 205.0
