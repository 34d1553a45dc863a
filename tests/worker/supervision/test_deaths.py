"""How the exit of a child is judged, with children that have no process."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from django_jobqueue.storage.claims import Claim
from django_jobqueue.worker.supervision.deaths import is_failed_start, judge_death
from django_jobqueue.worker.supervision.memory_values import Stage
from django_jobqueue.worker.supervision.shared_memory import SharedMemory


def make_child(stage: Stage = Stage.READY, **values: Any) -> Any:
    memory = SharedMemory(2)
    memory.close_file()
    memory.stage = stage
    defaults = {"is_killed": False, "is_leaving": False, "blame": None}
    return SimpleNamespace(
        shared_memory=memory, stage=memory.stage, **{**defaults, **values}
    )


def enter(child: Any, number: int) -> None:
    values: dict[str, Any] = dict.fromkeys(Claim._fields, 0)
    claim = Claim(**values | {"id": UUID(int=number)})
    now = time.monotonic()
    child.shared_memory.enter(claim, entered=now, limit=now + 60, most=3)


@pytest.mark.parametrize("code", [0, 1, -11])
def test_an_exit_that_the_child_has_not_announced_is_charged(code: int) -> None:
    child = make_child()
    enter(child, 1)
    death = judge_death(child, code, is_stopping=False)
    assert death.cause == death.exit != ""
    assert [attempt.id for attempt in death.attempts] == [UUID(int=1)]
    assert not death.is_clean


@pytest.mark.parametrize("code", [0, 75])
def test_an_announced_exit_charges_no_job(code: int) -> None:
    child = make_child()
    child.shared_memory.mark_ended()
    death = judge_death(child, code, is_stopping=False)
    assert death.cause is None
    assert death.is_clean is death.is_shutdown is (code == 0)


@pytest.mark.parametrize("blame", [None, "it made no progress"])
def test_a_child_that_was_killed_is_charged_only_with_its_blame(
    blame: str | None,
) -> None:
    child = make_child(is_killed=True, is_leaving=True, blame=blame)
    assert judge_death(child, -9, is_stopping=False).cause == blame
    assert judge_death(child, -9, is_stopping=True).is_clean


def test_an_attempt_that_the_supervisor_has_ended_does_not_die_again() -> None:
    child = make_child()
    enter(child, 1)
    enter(child, 2)
    first, _ = child.shared_memory.read_running()
    child.shared_memory.mark_ended_by_supervisor(first)
    [other] = judge_death(child, -9, is_stopping=False).attempts
    assert other.id == UUID(int=2)


@pytest.mark.parametrize(
    ("stage", "code", "is_killed", "is_failed"),
    [
        (Stage.STARTING, 1, False, True),
        (Stage.STARTING, -9, True, True),
        (Stage.STARTING, -9, False, False),
        (Stage.READY, 1, False, False),
    ],
)
def test_only_a_death_before_ready_is_a_failed_start(
    stage: Stage, code: int, is_killed: bool, is_failed: bool
) -> None:
    child = make_child(stage, is_killed=is_killed)
    assert is_failed_start(child, code) is is_failed
