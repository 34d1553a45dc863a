"""Connections of Django's pool that jobs wait for and no job holds are noticed."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from django_jobqueue.worker.running import pool_watch as module
from django_jobqueue.worker.running.in_flight import InFlightJobs
from django_jobqueue.worker.running.pool_watch import PoolWatch

from .test_in_flight import make_claim

WAIT = """
def wait(begun, event):
    begun.set()
    event.wait(30)
"""


@dataclass
class FakePool:
    max_size: int = 2
    waiting: int = 1
    available: int = 0
    size: int = 2

    def get_stats(self) -> dict[str, int]:
        return {
            "requests_waiting": self.waiting,
            "pool_available": self.available,
            "pool_size": self.size,
        }


@dataclass
class FakeWrapper:
    alias: str = "default"
    connection: Any = "open"


class Scene:
    """A job that waits for a connection, and a second one that may hold some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pool = FakePool()
        self.now = 100.0
        monkeypatch.setattr(module, "find_pool_size", lambda alias: alias == "default")
        monkeypatch.setattr(module, "_find_pool", lambda alias: self.pool)
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        in_flight = InFlightJobs()
        self.job, self.other = in_flight.add([make_claim(1), make_claim(2)])
        self.watch = PoolWatch(in_flight)
        self._may_end = threading.Event()

    def wait(self, module_name: str) -> None:
        """Have the job wait in a function of such a module."""
        names: dict[str, Any] = {"__name__": module_name}
        exec(WAIT, names)
        begun = threading.Event()
        thread = threading.Thread(target=names["wait"], args=(begun, self._may_end))
        thread.start()
        self.job.thread = thread.ident
        assert begun.wait(30)

    def close(self) -> None:
        self._may_end.set()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(monkeypatch)
    yield made
    made.close()


def test_job_that_waits_for_what_no_job_holds_is_seen(scene: Scene) -> None:
    scene.wait("psycopg_pool.pool")
    assert scene.watch.stalled_since == 100
    scene.now = 109
    assert scene.watch.stalled_since == 100
    # It is given back, and another one comes.
    scene.pool.waiting = 0
    scene.now = 118
    assert scene.watch.stalled_since == 100
    scene.now = 130
    assert scene.watch.stalled_since == math.inf


def test_job_that_waits_for_other_jobs_is_not_a_fault(scene: Scene) -> None:
    scene.wait("psycopg_pool.pool")
    scene.other.thread = threading.get_ident()
    scene.other.wrappers = [FakeWrapper(), FakeWrapper()]
    assert scene.watch.stalled_since == math.inf


@pytest.mark.parametrize(
    "change", [{"waiting": 0}, {"available": 1}, {"size": 1}], ids=str
)
def test_pool_that_is_not_exhausted_is_well(
    scene: Scene, change: dict[str, int]
) -> None:
    """Such as one that cannot connect: that is the database's trouble."""
    scene.wait("psycopg_pool.pool")
    vars(scene.pool).update(change)
    assert scene.watch.stalled_since == math.inf


def test_job_that_waits_for_something_else_is_not_concerned(scene: Scene) -> None:
    """A thread of its own waits for the pool."""
    scene.wait("shop.jobs")
    assert scene.watch.stalled_since == math.inf
