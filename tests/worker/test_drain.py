"""The end of a worker, with loops that hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connections

from django_jobqueue.options import make_options
from django_jobqueue.storage.database import Database
from django_jobqueue.worker.loop import Loop
from django_jobqueue.worker.worker import Worker
from tests.testapp import jobs, leftover_jobs
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

GRACE = 0.5


class Stuck:
    """Keeps loops in a step that does not end, as a silent database does."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self._loops: list[Loop] = []

    def catch(self, loop: Loop) -> None:
        loop.step = self._wait
        loop.start()
        self._loops.append(loop)

    def release(self) -> None:
        self.go_on.set()
        for loop in self._loops:
            loop.stop()
            loop.join(10)

    def _wait(self, db: Database) -> float:
        self.go_on.wait()
        return 0.0


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.release()


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(make_options({"shutdown_timeout": GRACE}))
    yield made
    made.finisher.loop.stop()
    made.finisher.wake()
    made.finisher.loop.join(10)
    connections.close_all()


def drain(worker: Worker) -> float:
    """Drain as after a SIGTERM; return the seconds it took."""
    worker.stop()
    began = time.monotonic()
    worker.is_asked_to_stop()
    worker.drain()
    return time.monotonic() - began


def test_job_that_a_last_claim_has_started_is_given_back(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, end = tmp_path / "started", tmp_path / "end"
    close = worker.slots.close

    def claim_and_close() -> None:
        worker.claimer.step(Database(alias="default"))
        wait_until(started.exists)
        close()

    # Nothing is in flight when the drain begins, but a claim is on its way.
    monkeypatch.setattr(worker.slots, "close", claim_and_close)
    worker.finisher.loop.start()
    job = jobs.ignore_everything.enqueue(touch=str(started), until=str(end))

    drain(worker)

    job.refresh_from_db()
    assert (job.status, job.attempts, job.error) == ("pending", 0, "")
    assert worker.has_abandoned
    end.touch()


def test_handlers_see_the_stop_although_the_claim_loop_is_stuck(
    worker: Worker, tmp_path: Path, stuck: Stuck
) -> None:
    started, told = tmp_path / "started", tmp_path / "told"
    job = leftover_jobs.note_when_stopping.enqueue(
        touch=str(started), stopping=str(told), seconds=0.1
    )
    worker.finisher.loop.start()
    worker.claimer.step(Database(alias="default"))
    wait_until(started.exists)
    stuck.catch(worker.claimer.loop)

    drain(worker)

    # In time to end by itself.
    job.refresh_from_db()
    assert (job.status, worker.has_abandoned) == ("succeeded", False)


def test_all_is_over_two_seconds_after_the_grace_whatever_is_stuck(
    worker: Worker, tmp_path: Path, stuck: Stuck
) -> None:
    started, end = tmp_path / "started", tmp_path / "end"
    jobs.ignore_everything.enqueue(touch=str(started), until=str(end))
    worker.claimer.step(Database(alias="default"))
    wait_until(started.exists)
    for loop in worker.list_loops():
        stuck.catch(loop)

    assert GRACE < drain(worker) < GRACE + 2
    assert worker.has_abandoned
    end.touch()
