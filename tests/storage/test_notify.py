"""Notifications: sent after the commit, once for each transaction, and never lost to a
rolled-back savepoint. Heard through a real LISTEN on a connection of its own."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import connection, transaction

from django_jobqueue import Job
from django_jobqueue.storage import notify
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.notify import (
    notify_cancel,
    notify_due,
    notify_pending,
)
from tests.testapp.jobs import nothing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

Receive = Callable[[], list[dict[str, Any]]]
MARK = "that was all"


@pytest.fixture(autouse=True)
def nothing_sent_yet() -> None:
    notify._sent.clear()


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back what is done inside: a transaction, or a savepoint of one."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def use_every_kind() -> None:
    """Send what there is to send."""
    db = Database(alias="default")
    notify_pending(db, {"default": 1})
    notify_due(db, 1.0)
    notify_cancel(db, UUID(int=1), UUID(int=2))
    with transaction.atomic():
        nothing.enqueue()
        nothing.using(delay=1).enqueue()
        Job.objects.enqueue_many([nothing.spec()])


@pytest.fixture
def receive() -> Iterator[Receive]:
    """Return a function that returns the notifications since its last call."""
    params = connection.get_connection_params()
    for django_only in ("cursor_factory", "context"):
        params.pop(django_only, None)
    with psycopg.connect(**params, autocommit=True) as listener:
        listener.execute("LISTEN jobqueue")

        def receive() -> list[dict[str, Any]]:
            # Notifications come in the order of the commits: ours is the last.
            listener.execute("SELECT pg_notify('jobqueue', %s)", [MARK])
            received = []
            for notice in listener.notifies(timeout=30):
                if notice.payload == MARK:
                    return received
                received.append(json.loads(notice.payload))
            raise AssertionError("the mark was not received")

        yield receive


@pytest.mark.sqlite
def test_every_kind_can_be_sent_on_any_database() -> None:
    use_every_kind()
    assert Job.objects.count() == 3
    assert connection.run_on_commit == []


def test_every_kind_of_message_is_json(receive: Receive) -> None:
    db = Database(alias="default")
    notify_pending(db, {"default": 5, "mail": -3})
    notify_due(db, 1.23456)
    notify_cancel(db, UUID(int=1), UUID(int=2))
    notify_pending(db, {})
    assert receive() == [
        {"pending": {"default": 5, "mail": -3}},
        {"due": 1.235},
        {"cancel": str(UUID(int=1)), "worker": str(UUID(int=2))},
    ]


def test_many_queues_fit_into_the_messages(receive: Receive) -> None:
    ranks = {f"{'q' * 60}{n:04}": -(2**62) - n for n in range(333)}
    notify_pending(Database(alias="default"), ranks)
    received = [message["pending"] for message in receive()]
    assert {queue: rank for part in received for queue, rank in part.items()} == ranks


def test_job_outside_a_transaction_is_notified_at_once(receive: Receive) -> None:
    made = nothing.enqueue()
    assert receive() == [{"pending": {"default": made.rank}}]


def test_job_is_notified_after_the_commit_and_not_before(receive: Receive) -> None:
    with transaction.atomic():
        made = nothing.enqueue()
        assert receive() == []
    assert receive() == [{"pending": {"default": made.rank}}]


def test_notification_is_no_part_of_the_callers_transaction(receive: Receive) -> None:
    seen = []
    with (
        connection.execute_wrapper(
            lambda execute, sql, params, many, context: (
                seen.append((sql, connection.in_atomic_block)),
                execute(sql, params, many, context),
            )[1]
        ),
        transaction.atomic(),
    ):
        nothing.enqueue()
    assert [inside for sql, inside in seen if "pg_notify" in sql] == [False]
    assert len(receive()) == 1


def test_job_that_is_rolled_back_is_not_notified(receive: Receive) -> None:
    with rolled_back():
        nothing.enqueue()
    assert receive() == []


def test_one_transaction_sends_one_message_with_the_lowest_ranks(
    receive: Receive,
) -> None:
    with transaction.atomic():
        made = [
            nothing.using(queue=queue, priority=priority).enqueue()
            for queue in ("default", "mail")
            for priority in (0, 50, 10)
        ]
        assert len(connection.run_on_commit) == 1
    assert receive() == [{"pending": {"default": made[1].rank, "mail": made[4].rank}}]


def test_job_enqueued_after_a_rolled_back_savepoint_is_notified(
    receive: Receive,
) -> None:
    with transaction.atomic():
        with rolled_back():
            nothing.enqueue()
        made = nothing.enqueue()
    assert receive() == [{"pending": {"default": made.rank}}]


def test_job_enqueued_before_a_rolled_back_savepoint_is_notified(
    receive: Receive,
) -> None:
    with transaction.atomic():
        made = nothing.enqueue()
        with rolled_back():
            nothing.using(queue="mail").enqueue()
    [message] = receive()
    assert message["pending"]["default"] == made.rank


def test_job_of_a_savepoint_in_a_rolled_back_one_is_notified_when_repeated(
    receive: Receive,
) -> None:
    with transaction.atomic():
        with rolled_back(), transaction.atomic():
            nothing.enqueue()
        with transaction.atomic():
            made = nothing.enqueue()
    assert receive() == [{"pending": {"default": made.rank}}]


def test_jobs_of_savepoints_that_stay_are_notified(receive: Receive) -> None:
    with transaction.atomic():
        with transaction.atomic():
            first = nothing.using(queue="a").enqueue()
        with transaction.atomic():
            second = nothing.using(queue="b").enqueue()
    notified = {
        queue: rank
        for message in receive()
        for queue, rank in message["pending"].items()
    }
    assert notified == {"a": first.rank, "b": second.rank}


def test_existing_job_of_a_key_is_not_notified_again(receive: Receive) -> None:
    nothing.using(unique_key="a").enqueue()
    receive()
    notify._sent.clear()
    nothing.using(unique_key="a").enqueue()
    assert receive() == []


def test_second_job_within_the_window_is_not_notified(
    receive: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "WINDOW_SECONDS", 3600.0)
    nothing.enqueue()
    assert len(receive()) == 1
    nothing.enqueue()
    assert receive() == []
    nothing.using(queue="mail").enqueue()
    assert len(receive()) == 1


def test_lower_rank_within_the_window_is_notified(
    receive: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "WINDOW_SECONDS", 3600.0)
    nothing.enqueue()
    receive()
    urgent = nothing.using(priority=1).enqueue()
    assert receive() == [{"pending": {"default": urgent.rank}}]


def test_job_after_the_window_is_notified(
    receive: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "WINDOW_SECONDS", 0.0)
    nothing.enqueue()
    nothing.enqueue()
    assert len(receive()) == 2


def test_job_due_soon_is_notified_with_its_seconds(receive: Receive) -> None:
    nothing.using(delay=5).enqueue()
    [message] = receive()
    assert 4 < message["due"] <= 5


def test_job_due_late_is_not_notified(receive: Receive) -> None:
    nothing.using(delay=3600).enqueue()
    assert receive() == []


def test_first_of_the_jobs_due_soon_is_notified(receive: Receive) -> None:
    with transaction.atomic():
        for delay in (15, 5, 10):
            nothing.using(delay=delay).enqueue()
    [message] = receive()
    assert 4 < message["due"] <= 5


def test_bulk_is_notified_once_with_its_best_ranks(receive: Receive) -> None:
    specs = [
        nothing.using(queue=queue, priority=priority).spec()
        for queue in ("a", "b")
        for priority in (0, 50, 10)
    ]
    Job.objects.enqueue_many([*specs, nothing.using(delay=5).spec()])
    pending, due = receive()
    best = {
        queue: Job.objects.filter(queue=queue).order_by("rank")[0].rank
        for queue in ("a", "b")
    }
    assert pending == {"pending": best}
    assert 4 < due["due"] <= 5


def test_failing_notification_does_not_fail_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notify, "NOTIFY", "SELECT no_such_function(%(message)s)")
    with transaction.atomic():
        made = nothing.enqueue()
    assert Job.objects.filter(pk=made.pk).exists()


def test_failing_notification_does_not_fail_a_call_outside_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notify, "NOTIFY", "SELECT no_such_function(%(message)s)")
    made = nothing.enqueue()
    assert Job.objects.filter(pk=made.pk).exists()


def test_autocommit_switched_off_by_hand_enqueues_without_a_notification(
    receive: Receive,
) -> None:
    transaction.set_autocommit(False)
    try:
        nothing.enqueue()
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert Job.objects.count() == 1
    assert receive() == []


def test_names_that_enqueue_would_refuse_are_not_notified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        Database, "execute", lambda self, statement, values: seen.append(values)
    )
    names = {f"{number}{chr(0x1F600) * 60}": 1 for number in range(50)}
    notify_pending(Database(alias="default"), {**names, "mail": 5})
    assert [json.loads(each["message"]) for each in seen] == [{"pending": {"mail": 5}}]
