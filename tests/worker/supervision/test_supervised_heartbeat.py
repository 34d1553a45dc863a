"""A child's end of the connection with its supervisor."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest

from django_jobqueue.options import get_options
from django_jobqueue.worker.commands import Command
from django_jobqueue.worker.supervision import supervised_heartbeat as module
from django_jobqueue.worker.supervision.memory_values import Counts
from django_jobqueue.worker.supervision.shared_memory import SharedMemory
from django_jobqueue.worker.supervision.supervised_heartbeat import (
    EXIT_UNLINKED,
    ChildSpec,
    SupervisedHeartbeat,
)
from tests.waiting import wait_until


class Link:
    """A child's heartbeat, and what became of its process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reader, self.writer = os.pipe()
        memory = SharedMemory(1)
        spec = ChildSpec(
            worker_id=str(uuid4()),
            supervisor=os.getppid(),
            shared_memory=memory.fd,
            command_pipe=self.reader,
            places=1,
            is_isolated=False,
        )
        self.commands: list[Command] = []
        self.code: int | None = None
        self.has_exited = threading.Event()
        self.heartbeat = SupervisedHeartbeat(spec, options=get_options())
        monkeypatch.setattr(module, "TICK_SECONDS", 0.01)
        monkeypatch.setattr(module.os, "_exit", self.exit)

    def start(self) -> None:
        self.heartbeat.start(
            read_counts=lambda ticks: Counts(ticks=ticks),
            on_beat=lambda: None,
            on_command=self.commands.append,
        )

    def exit(self, code: int) -> None:
        self.code = code
        self.has_exited.set()


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Iterator[Link]:
    link = Link(monkeypatch)
    yield link
    link.heartbeat.finish()
    link.heartbeat._thread.join(5)
    os.close(link.reader)
    os.close(link.writer)


@pytest.mark.parametrize("what", ["closed", "another file"])
def test_a_child_ends_when_a_job_has_closed_its_pipe(link: Link, what: str) -> None:
    """As os.closerange() does; the next file that is opened gets the number."""
    kept = os.dup(link.reader)
    other = os.open(os.devnull, os.O_RDONLY)
    try:
        link.start()
        if what == "closed":
            os.close(link.reader)
        else:
            os.dup2(other, link.reader)
        assert link.has_exited.wait(5)
    finally:
        os.dup2(kept, link.reader)
        os.close(kept)
        os.close(other)
    assert link.code == EXIT_UNLINKED
    # Its running attempts died with it.
    assert not link.heartbeat.shared_memory.has_ended


def test_a_child_ends_when_it_cannot_say_that_it_is_alive(link: Link) -> None:
    def fail(ticks: int) -> Counts:
        raise MemoryError

    link.heartbeat.start(
        read_counts=fail, on_beat=lambda: None, on_command=link.commands.append
    )
    assert link.has_exited.wait(5)
    assert link.code == EXIT_UNLINKED
    link.heartbeat._read_counts = lambda ticks: Counts()


def test_an_unknown_byte_is_logged_and_the_commands_around_it_arrive(
    link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    link.start()
    os.write(link.writer, b"d?s")
    wait_until(lambda: len(link.commands) == 2)
    assert link.commands == [Command.DRAIN, Command.SHOW_STACKS]
    assert "the supervisor sent an unknown command" in caplog.text
    assert not link.has_exited.is_set()
