"""Receivers of signals: slow, hanging or failing, they stop no loop of a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.dispatch import Signal

from django_jobqueue import Job
from django_jobqueue.worker import receivers as module
from django_jobqueue.worker.receivers import Receivers
from tests.waiting import wait_until


@pytest.fixture
def signal() -> Signal:
    return Signal()


@pytest.fixture
def receivers() -> Iterator[Receivers]:
    receivers = Receivers(room=3)
    receivers.start()
    yield receivers
    wait_until(lambda: receivers.finish(0.1))


def test_signals_are_sent_in_their_order_by_a_thread(
    receivers: Receivers, signal: Signal
) -> None:
    seen: list[tuple[str, int]] = []

    def listen(number: int, **values: Any) -> None:
        seen.append((threading.current_thread().name, number))

    signal.connect(listen)
    for number in range(20):
        receivers.send(signal, number=number)
    wait_until(lambda: len(seen) == 20)

    assert seen == [("jobqueue-signals", number) for number in range(20)]


def test_what_waits_is_sent_before_the_end(
    receivers: Receivers, signal: Signal
) -> None:
    seen: list[int] = []
    gate = threading.Event()

    def listen(number: int, **values: Any) -> None:
        gate.wait(10)
        seen.append(number)

    signal.connect(listen)
    for number in range(3):
        receivers.send(signal, number=number)
    assert not receivers.finish(0.01)

    gate.set()

    wait_until(lambda: receivers.finish(0.1))
    assert seen == [0, 1, 2]


def test_a_receiver_that_hangs_loses_its_signals_and_stops_no_loop(
    receivers: Receivers,
    signal: Signal,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(module, "HANGING_RECEIVER_SECONDS", 0.2)
    gate = threading.Event()

    def listen(**values: Any) -> None:
        gate.wait(30)

    signal.connect(listen)
    began = time.monotonic()
    for _ in range(8):
        receivers.send(signal)
    took = time.monotonic() - began

    assert took < 5
    # One is with the receiver, three wait.
    assert receivers.dropped == 4
    assert caplog.text.count("signals are dropped") == 1
    gate.set()


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_receiver_that_raises_does_not_end_the_thread(
    receivers: Receivers, signal: Signal, error: type[BaseException]
) -> None:
    seen: list[int] = []

    def listen(number: int, **values: Any) -> None:
        seen.append(number)
        raise error("receiver")

    signal.connect(listen)
    receivers.send(signal, number=1)
    receivers.send(signal, number=2)

    wait_until(lambda: seen == [1, 2])


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_after_its_connection_was_ended_one_receiver_fails_at_most(
    receivers: Receivers, signal: Signal
) -> None:
    backends: list[int] = []
    failures: list[Exception] = []

    def listen(**values: Any) -> None:
        try:
            Job.objects.count()
            backends.append(connection.connection.info.backend_pid)
        except Exception as error:
            failures.append(error)
            raise

    signal.connect(listen)
    receivers.send(signal)
    [pid] = wait_until(lambda: list(backends))
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    for _ in range(40):
        receivers.send(signal)
    wait_until(lambda: len(backends) + len(failures) == 41)

    assert len(failures) <= 1
