"""A copy that a handler makes with os.fork() ends with the handler."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_jobqueue import job, registry
from django_jobqueue.models import Job
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import Succeeded
from django_jobqueue.storage.database import Database
from django_jobqueue.worker.running.attempt import arun_attempt, run_attempt
from django_jobqueue.worker.running.attempt_env import AttemptEnv
from django_jobqueue.worker.running.in_flight import InFlightJob
from django_jobqueue.worker.running.memory_place import MemoryPlace
from django_jobqueue.worker.supervision.shared_memory import SharedMemory
from tests.lifecycle.claiming import WORKER, claim_one

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.once,
    # Python 3.12 warns of a fork beside threads.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

LEFT_ALIVE = 99


def do_return() -> None:
    pass


def do_raise() -> None:
    raise ValueError


ENDS: dict[str, tuple[Callable[[], None], int]] = {
    "returns": (do_return, 0),
    "raises": (do_raise, 1),
    "sys.exit()": (sys.exit, 0),
    "sys.exit(3)": (lambda: sys.exit(3), 3),
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    parent = os.getpid()
    yield
    assert os.getpid() == parent


@pytest.mark.parametrize("kind", ["plain", "atomic", "async"])
@pytest.mark.parametrize("way", list(ENDS))
def test_copy_ends_with_the_handler_and_the_parent_goes_on(kind: str, way: str) -> None:
    end, code = ENDS[way]
    copies: list[int] = []

    def fork() -> None:
        if pid := os.fork():
            copies.append(pid)
        else:
            end()

    async def fork_async() -> None:
        fork()

    function: Any = fork_async if kind == "async" else fork
    handler = job("testapp.forks", max_attempts=1, atomic=kind == "atomic")(function)
    handler.enqueue()
    ours = SharedMemory(1)
    theirs = SharedMemory(1, fd=ours.fd)
    ours.close_file()
    claim = claim_one(Database(alias="default"))
    in_flight = InFlightJob(claim, MemoryPlace(claim, theirs, grace=0.0))
    env = AttemptEnv(
        options=get_options(),
        worker_id=WORKER,
        report_progress=lambda claim, progress: None,
        report_started=lambda claim: None,
    )

    parent = os.getpid()
    try:
        run: Any = async_to_sync(arun_attempt) if kind == "async" else run_attempt
        ending = run(in_flight, env)
    finally:
        if os.getpid() != parent:
            os._exit(LEFT_ALIVE)

    [copy] = copies
    assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == code
    assert isinstance(ending.outcome, Succeeded)
    # What an atomic job has written is committed once, by the parent.
    status = "succeeded" if kind == "atomic" else "running"
    assert Job.objects.get().status == status


def test_what_a_copy_writes_does_not_reach_the_supervisor() -> None:
    ours = SharedMemory(1)
    theirs = SharedMemory(1, fd=ours.fd)
    ours.close_file()
    claim: Any = _Claim()
    place = theirs.enter(claim, entered=1.0, limit=2.0, most=1)
    if not (copy := os.fork()):
        theirs.leave(place)
        has_left = not list(theirs.read_running())
        os._exit(0 if has_left else 1)
    assert os.waitpid(copy, 0)[1] == 0
    assert len(list(ours.read_running())) == 1
    theirs.leave(place)
    assert not list(ours.read_running())


class _Claim:
    id = uuid.UUID(int=1)
    lease_token = 1
    attempt = 1
