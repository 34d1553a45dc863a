"""What a job changes for its whole process is put back, if it harms the others."""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_jobqueue.worker.running.process_state import (
    ProcessState,
    read_process_state,
)
from tests.worker.running.test_event_loop import Hall
from tests.worker.running.test_event_loop import hall as hall

HARM: dict[str, Callable[[], Any]] = {
    "recursion limit": lambda: sys.setrecursionlimit(500),
    "switch interval": lambda: sys.setswitchinterval(60),
    "garbage collector": gc.disable,
    "logging": lambda: logging.disable(logging.CRITICAL),
}


@pytest.fixture(autouse=True)
def before() -> Iterator[ProcessState]:
    state = read_process_state()
    yield state
    state.restore()


@pytest.mark.parametrize("what", HARM)
def test_harm_to_the_process_ends_with_the_job(
    what: str, hall: Hall, before: ProcessState
) -> None:
    async def harm() -> None:
        HARM[what]()

    hall.action = harm
    hall.add(1)
    hall.wait_for(1)
    assert read_process_state() == before


def test_higher_recursion_limit_stays(before: ProcessState) -> None:
    """A library may set it once, when it is imported."""
    sys.setrecursionlimit(before.recursion_limit + 1)
    before.restore()
    assert sys.getrecursionlimit() == before.recursion_limit + 1
    sys.setrecursionlimit(before.recursion_limit)
