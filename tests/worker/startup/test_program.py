"""The process of `runworker` as the operating system sees it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping

import pytest

from django_jobqueue.worker.commands import Command, Mailbox
from django_jobqueue.worker.startup.program import (
    CHILD_SIGNALS,
    HANDLED_SIGNALS,
    SUPERVISOR_SIGNALS,
    WORKER_SIGNALS,
    install_signal_handlers,
)


@pytest.fixture(autouse=True)
def restored_handlers() -> Iterator[None]:
    before = {
        number: signal.getsignal(number)
        for number in (getattr(signal, name) for name in SUPERVISOR_SIGNALS)
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        pytest.param(WORKER_SIGNALS, Command.RESTART, id="worker"),
        pytest.param(SUPERVISOR_SIGNALS, Command.RESTART, id="supervisor"),
        pytest.param(CHILD_SIGNALS, None, id="child"),
    ],
)
def test_a_signal_puts_its_command_into_the_mailbox(
    commands: Mapping[str, Command | None], expected: Command | None
) -> None:
    mailbox = Mailbox()
    # As a supervisor starts its children, and as a program starts again.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    install_signal_handlers(mailbox, commands)
    os.kill(os.getpid(), signal.SIGHUP)
    assert mailbox.take() is expected
    os.kill(os.getpid(), signal.SIGTERM)
    assert mailbox.take() is Command.DRAIN


def test_a_signal_that_the_platform_lacks_is_left_out() -> None:
    install_signal_handlers(Mailbox(), {"SIGNOSUCH": Command.DRAIN})
