"""The supervisor's heart: children may end at any moment of a beat."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from django_jobqueue.lifecycle.beat import Pulse
from django_jobqueue.lifecycle.database import Database
from django_jobqueue.models import WorkerHeartbeat
from django_jobqueue.options import get_options
from django_jobqueue.worker import heart as heart_module
from django_jobqueue.worker.board import Board
from django_jobqueue.worker.heart import Heart
from django_jobqueue.worker.identity import make_identity

pytestmark = pytest.mark.django_db(transaction=True)


class StubChild:
    """A child without a process."""

    def __init__(self) -> None:
        self.id = uuid4()
        self.identity = make_identity(self.id, get_options())
        self.board = Board(1)

    def read_pulse(self) -> Pulse:
        running = self.board.counts.running
        return Pulse(state="running", processed=0, failed=0, running=running, memory=0)


@pytest.mark.parametrize("is_known", [False, True], ids=["first beat", "later beat"])
def test_child_that_ends_during_a_beat_harms_no_other(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    db = Database(alias="default")
    heart = Heart(get_options(), on_suspects=lambda: None)
    gone: Any = StubChild()
    other: Any = StubChild()
    heart.add(gone)
    if is_known:
        heart.step(db)
    heart.add(other)
    beat_workers = heart_module.beat_workers

    def beat_and_bury(*args: Any, **options: Any) -> Any:
        replies = beat_workers(*args, **options)
        heart.bury(gone, [], cause=None, is_clean=True)
        gone.board.close_file()
        return replies

    monkeypatch.setattr(heart_module, "beat_workers", beat_and_bury)
    heart.step(db)

    assert other.board.confirmed
    assert [row.pk for row in WorkerHeartbeat.objects.all()] == [other.id]
