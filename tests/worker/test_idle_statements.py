"""What an idle worker asks of its database: next to nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pytest
from django.db import connection

from django_jobqueue.options import get_options
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.worker_rows import BeatReply
from django_jobqueue.worker.running.connections import close_database, open_database
from django_jobqueue.worker.worker import Worker
from tests.factories import make_job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]


CountedDatabase = tuple[Database, list[str]]


class Counted:
    """A connection that notes what goes through it."""

    def __init__(self, db: Database) -> None:
        assert db.own is not None
        self.statements: list[str] = []
        self._own = db.own

    def execute(self, statement: str, *args: object, **kwargs: object) -> object:
        self.statements.append(" ".join(statement.split()))
        return self._own.execute(statement, *args, **kwargs)  # type: ignore[arg-type]


@pytest.fixture
def worker() -> Worker:
    worker = Worker(get_options())
    worker.heartbeat.reply = BeatReply(is_steady=True, is_someone_silent=False)
    worker.claimer._poll.listening_since = time.monotonic() - 60
    return worker


@pytest.fixture
def counted() -> Iterator[CountedDatabase]:
    db = open_database("default", name="test")
    counted = Counted(db)
    yield Database(alias="default", own=counted), counted.statements  # type: ignore[arg-type]
    close_database(db)


def test_an_idle_worker_looks_with_one_statement_every_15_seconds(
    worker: Worker, counted: CountedDatabase
) -> None:
    db, statements = counted
    make_job(scheduled=True)
    worker.claimer.step(db)
    statements.clear()

    worker.claimer._poll.request()
    delay = worker.claimer.step(db)

    assert len(statements) == 1
    assert 14 < delay < 18.1


def test_a_worker_that_begins_to_listen_looks_once_more_soon(
    worker: Worker, counted: CountedDatabase
) -> None:
    """A producer says a thing once in a while, and may have said it just before."""
    db, _ = counted
    worker.claimer._poll.listening_since = time.monotonic()

    assert worker.claimer.step(db) <= 1

    worker.claimer._poll.listening_since -= 1
    worker.claimer._poll.request()
    assert worker.claimer.step(db) > 14


def test_an_idle_worker_knows_of_no_due_time(
    worker: Worker, counted: CountedDatabase
) -> None:
    db, _ = counted
    worker.claimer.step(db)

    assert worker.claimer._promoter.next_due == math.inf


def test_idle_maintenance_takes_two_statements_a_minute(
    worker: Worker, counted: CountedDatabase
) -> None:
    db, statements = counted
    connection.close()
    worker.maintenance._next_rare = 0.0

    worker.maintenance.step(db)
    delay = worker.maintenance.step(db)

    assert len(statements) == 2
    # Django's own connection is not needed for it.
    assert connection.connection is None
    assert delay > 1
    assert worker.maintenance._next_rare - time.monotonic() > 59


def test_a_beat_is_one_statement(worker: Worker, counted: CountedDatabase) -> None:
    db, statements = counted

    worker.heartbeat.loop.step(db)  # type: ignore[union-attr]

    assert len(statements) == 1
