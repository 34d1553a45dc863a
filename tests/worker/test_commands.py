"""Commands to the main thread of a worker or a supervisor."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from django_jobqueue.options import make_options
from django_jobqueue.worker.commands import (
    Command,
    Mailbox,
    UnknownCommandError,
    decode_command,
    encode_command,
)
from django_jobqueue.worker.supervision import supervisor as supervisor_module
from django_jobqueue.worker.supervision.supervisor import Supervisor
from django_jobqueue.worker.worker import Worker

TO_CHILDREN = [
    Command.DRAIN,
    Command.RETIRE,
    Command.STOP_NOW,
    Command.SHOW_STACKS,
]
TO_SUPERVISORS = [Command.SUSPEND, Command.SUSPECTS_SEEN, Command.CHILD_CHANGED]
TO_WORKERS = [Command.RETIRE, Command.DRAINED]
SHUTDOWN_SECONDS = 25.0


@pytest.fixture
def worker() -> Worker:
    return Worker(make_options({"shutdown_timeout": SHUTDOWN_SECONDS}))


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    yield Supervisor(make_options({"shutdown_timeout": SHUTDOWN_SECONDS}), command=[])
    assert supervisor_module.logger.flush(10)


def give(process: Worker | Supervisor, *commands: Command) -> bool:
    """Put commands into the mailbox, act on them, return whether the process stops."""
    for command in commands:
        process.mailbox.put(command)
    process.handle_commands()
    return process.is_asked_to_stop()


@pytest.mark.parametrize("command", TO_CHILDREN)
def test_a_command_to_a_child_is_one_byte_and_back(command: Command) -> None:
    byte = encode_command(command)
    assert len(byte) == 1
    assert decode_command(byte) is command


@pytest.mark.parametrize("byte", [b"", b"x", b"\0", b"dd"])
def test_an_unknown_byte_is_an_error(byte: bytes) -> None:
    with pytest.raises(UnknownCommandError):
        decode_command(byte)


@pytest.mark.parametrize("command", set(Command) - set(TO_CHILDREN))
def test_a_command_that_is_not_for_children_cannot_be_sent(command: Command) -> None:
    with pytest.raises(UnknownCommandError):
        encode_command(command)


def test_a_mailbox_returns_commands_in_their_order() -> None:
    mailbox = Mailbox()
    assert mailbox.take() is None
    for command in Command:
        mailbox.put(command)
    assert mailbox.take() is Command.DRAIN
    assert list(mailbox.take_all()) == list(Command)[1:]
    assert mailbox.take(timeout=0.001) is None


def test_a_signal_handler_can_put_into_the_mailbox_it_interrupts() -> None:
    mailbox = Mailbox()
    before = signal.signal(
        signal.SIGALRM, lambda *_: mailbox.put(Command.CHILD_CHANGED)
    )
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert mailbox.take(timeout=10) is Command.CHILD_CHANGED
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("command", TO_SUPERVISORS)
def test_a_worker_reports_a_command_for_supervisors_and_goes_on(
    worker: Worker, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    assert not give(worker, command)
    assert "a worker was sent a command for a supervisor" in caplog.text
    assert command.name in caplog.text


@pytest.mark.parametrize("command", TO_WORKERS)
def test_a_supervisor_reports_a_command_for_workers_and_goes_on(
    supervisor: Supervisor, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    assert not give(supervisor, command)
    assert supervisor_module.logger.flush(10)
    assert "a supervisor was sent a command for a worker" in caplog.text
    assert command.name in caplog.text


@pytest.mark.parametrize("process", ["worker", "supervisor"])
def test_what_is_no_command_is_an_error_and_no_stop(
    process: str, request: pytest.FixtureRequest
) -> None:
    made = request.getfixturevalue(process)
    made.mailbox.put("drain")
    with pytest.raises(AssertionError):
        made.handle_commands()
    assert not made.is_asked_to_stop()


@pytest.mark.parametrize("process", ["worker", "supervisor"])
@pytest.mark.parametrize(
    ("commands", "is_to_restart"),
    [
        ([Command.RESTART], True),
        ([Command.DRAIN], False),
        ([Command.STOP_NOW], False),
        ([Command.RESTART, Command.DRAIN], False),
        ([Command.DRAIN, Command.RESTART], False),
        ([Command.RESTART, Command.STOP_NOW], False),
    ],
)
def test_a_stop_takes_precedence_over_a_restart(
    process: str,
    commands: list[Command],
    is_to_restart: bool,
    request: pytest.FixtureRequest,
) -> None:
    made = request.getfixturevalue(process)
    assert give(made, *commands)
    assert made.is_to_restart is is_to_restart


@pytest.mark.parametrize(
    ("commands", "is_now"),
    [
        ([Command.DRAIN], False),
        ([Command.RESTART, Command.DRAIN], False),
        ([Command.DRAIN, Command.DRAIN], True),
        ([Command.RESTART, Command.DRAIN, Command.DRAIN], True),
        ([Command.STOP_NOW], True),
        ([Command.DRAIN, Command.STOP_NOW], True),
        ([Command.STOP_NOW, Command.DRAIN], True),
    ],
)
def test_a_second_drain_stops_now(
    worker: Worker, supervisor: Supervisor, commands: list[Command], is_now: bool
) -> None:
    give(worker, *commands)
    give(supervisor, *commands)
    assert worker.seconds_left is not None
    assert (worker.seconds_left < 2) is is_now
    assert (supervisor._kill_at - time.monotonic() < 2) is is_now


@pytest.mark.parametrize("command", TO_WORKERS)
def test_running_jobs_of_a_worker_that_retires_have_no_time_limit(
    worker: Worker, command: Command
) -> None:
    assert give(worker, command)
    assert worker.seconds_left is None
