"""Signals of a failed attempt carry its exception, which is freed after that."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.dispatch import Signal

from django_jobqueue.failures import KeptException, clear_frames
from django_jobqueue.signals import job_died, job_retried, send_signal
from tests.testapp import jobs
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


class Mark:
    """Lives as long as the exception that holds it."""


class Received:
    """What the receivers of both signals were sent, in order."""

    def __init__(self) -> None:
        self.stacks: list[tuple[Any, str, str, dict[str, Any]]] = []
        self.refs: list[weakref.ref[Any]] = []

    def hear(self, signal: Any, exception: BaseException | None, **values: Any) -> None:
        assert exception is not None
        frame, _ = list(traceback.walk_tb(exception.__traceback__))[-1]
        found = (signal, str(exception), frame.f_code.co_name, dict(frame.f_locals))
        self.stacks.append(found)
        # A ValueError itself cannot be referred to weakly.
        exception.mark = mark = Mark()  # type: ignore[attr-defined]
        self.refs.append(weakref.ref(mark))


@pytest.fixture
def received() -> Iterator[Received]:
    made = Received()
    for signal in (job_retried, job_died):
        signal.connect(made.hear)
    yield made
    for signal in (job_retried, job_died):
        signal.disconnect(made.hear)


def burst() -> None:
    call_command("runworker", burst=True, verbosity=0)


def test_failed_attempts_are_sent_with_their_exception(received: Received) -> None:
    jobs.fail.using(max_attempts=2).enqueue(message="on purpose")
    burst()
    assert received.stacks == [
        (job_retried, "on purpose", "fail", {}),
        (job_died, "on purpose", "fail", {}),
    ]


def test_exception_is_freed_after_its_signal(received: Received) -> None:
    jobs.fail.using(max_attempts=1).enqueue()
    gc.disable()
    try:
        burst()
        assert len(received.refs) == 1
        wait_until(lambda: received.refs[0]() is None, pause=0.001)
    finally:
        gc.enable()


class Slow(Exception):
    freed_by: list[int]

    def __del__(self) -> None:
        self.freed_by.append(threading.get_ident())


@pytest.mark.parametrize("is_sent", [True, False])
def test_exception_is_freed_by_another_thread(is_sent: bool) -> None:
    error = Slow()
    error.freed_by = freed_by = []
    kept = KeptException(error)
    del error
    if is_sent:
        signal = Signal()
        send_signal(signal, exception=kept)
    del kept
    wait_until(lambda: freed_by, pause=0.001)
    assert threading.get_ident() not in freed_by


def test_frames_of_the_whole_chain_are_cleared() -> None:
    def inner() -> None:
        secret = object()
        raise ValueError(secret is None)

    def outer() -> None:
        mine = object()
        try:
            inner()
        except ValueError as error:
            raise ExceptionGroup("both", [KeyError(mine is None)]) from error

    with pytest.raises(ExceptionGroup) as caught:
        outer()
    error = caught.value
    del caught
    clear_frames(error)
    assert error.__cause__ is not None
    for supervised in (error, error.__cause__):
        frame, line = list(traceback.walk_tb(supervised.__traceback__))[-1]
        assert (line > 0, dict(frame.f_locals)) == (True, {})
