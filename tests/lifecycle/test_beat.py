"""The heartbeat row: made at the first beat, steady after a TTL, removed last."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from django.utils import timezone

from django_jobqueue.lifecycle.beat import (
    BeatReply,
    Pulse,
    WorkerIdentity,
    beat,
    deregister,
    remember_queues,
)
from django_jobqueue.lifecycle.database import Database
from django_jobqueue.models import Queue, WorkerHeartbeat
from tests.factories import make_job, make_worker

TTL = timedelta(seconds=30)
PULSE = Pulse(state="running", processed=5, failed=1, running=2, memory=1000)


def make_identity() -> WorkerIdentity:
    return WorkerIdentity(
        id=uuid4(),
        host="here",
        pid=7,
        name="w",
        queues={"mail": 2},
        concurrency=10,
        version="1",
    )


def test_the_first_beat_makes_the_row(database: Database) -> None:
    worker = make_identity()

    reply = beat(database, worker, PULSE, ttl=TTL)

    row = WorkerHeartbeat.objects.get(pk=worker.id)
    assert reply == BeatReply(False, False)
    assert (row.host, row.pid, row.name, row.queues) == ("here", 7, "w", {"mail": 2})
    assert (row.processed, row.failed, row.running, row.memory) == (5, 1, 2, 1000)
    assert row.started_at == row.last_seen_at == row.beating_since


def test_a_worker_is_steady_once_it_has_beaten_for_a_ttl(database: Database) -> None:
    worker, start = make_identity(), timezone.now()
    replies = [
        beat(database, worker, PULSE, ttl=TTL, now=start + timedelta(seconds=seconds))
        for seconds in (0, 20, 30, 31)
    ]

    assert [reply.is_steady for reply in replies] == [False, False, False, True]


def test_a_gap_longer_than_the_ttl_begins_a_new_count(database: Database) -> None:
    worker, start = make_identity(), timezone.now()
    later = start + timedelta(seconds=100)
    beat(database, worker, PULSE, ttl=TTL, now=start)

    reply = beat(database, worker, PULSE, ttl=TTL, now=later)

    row = WorkerHeartbeat.objects.get(pk=worker.id)
    assert not reply.is_steady
    assert (row.beating_since, row.started_at) == (later, start)


def test_a_beat_tells_that_another_worker_is_silent(database: Database) -> None:
    make_worker(last_seen_at=timezone.now() - timedelta(minutes=2))

    assert beat(database, make_identity(), PULSE, ttl=TTL).is_someone_silent


def test_a_worker_without_jobs_takes_its_row_with_it(database: Database) -> None:
    worker = make_identity()
    beat(database, worker, PULSE, ttl=TTL)

    deregister(database, worker.id)

    assert not WorkerHeartbeat.objects.exists()


def test_the_row_stays_while_a_job_bears_its_id(database: Database) -> None:
    worker = make_identity()
    beat(database, worker, PULSE, ttl=TTL)
    make_job(running=True, worker_id=worker.id)

    deregister(database, worker.id)

    assert WorkerHeartbeat.objects.count() == 1


def test_queues_are_remembered_once(database: Database) -> None:
    remember_queues(database, ["a", "b"])
    remember_queues(database, ["b", "c"])

    names = Queue.objects.order_by("name").values_list("name", flat=True)
    assert list(names) == ["a", "b", "c"]
