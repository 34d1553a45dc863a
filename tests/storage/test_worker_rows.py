"""The heartbeat row: made at the first beat, steady after a TTL, removed last."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

from django.db import connection
from django.utils import timezone

from django_jobqueue.models import WorkerHeartbeat
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.worker_rows import (
    BeatReply,
    BeatValues,
    WorkerIdentity,
    beat,
    beat_workers,
    deregister,
)
from tests.factories import make_job, make_worker

TTL = timedelta(seconds=30)
PULSE = BeatValues(state="running", processed=5, failed=1, running=2, memory=1000)


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


def test_a_count_that_begins_in_the_future_begins_anew(database: Database) -> None:
    """After the clock was set back, or an UPDATE by hand: else it never rescues."""
    value = "infinity" if database.is_postgres else "2999-01-01 00:00:00"
    worker, start = make_identity(), timezone.now()
    beat(database, worker, PULSE, ttl=TTL, now=start)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE jobqueue_workerheartbeat SET beating_since = '{value}'")

    replies = [
        beat(database, worker, PULSE, ttl=TTL, now=start + timedelta(seconds=seconds))
        for seconds in (5, 30, 36)
    ]

    assert [reply.is_steady for reply in replies] == [False, False, True]


def test_a_beat_tells_that_another_worker_is_silent(database: Database) -> None:
    make_worker(last_seen_at=timezone.now() - timedelta(minutes=2))

    assert beat(database, make_identity(), PULSE, ttl=TTL).is_someone_silent


def test_one_call_beats_for_several_workers(database: Database) -> None:
    workers = [make_identity() for _ in range(3)]
    all_beat_values = [replace(PULSE, running=n, memory=n * 1000) for n in range(3)]
    beat(database, workers[1], PULSE, ttl=TTL)

    replies = beat_workers(
        database, list(zip(workers, all_beat_values, strict=True)), ttl=TTL
    )

    assert replies == {worker.id: BeatReply(False, False) for worker in workers}
    rows = {row.pk: row for row in WorkerHeartbeat.objects.all()}
    found = [(rows[worker.id].running, rows[worker.id].memory) for worker in workers]
    assert found == [(0, 0), (1, 1000), (2, 2000)]
    assert rows[workers[2].id].queues == {"mail": 2}
    assert len({row.last_seen_at for row in rows.values()}) == 1


def test_each_of_several_workers_has_its_own_count(database: Database) -> None:
    old, silent, new = [make_identity() for _ in range(3)]
    start = timezone.now()
    for seconds in (0, 25, 50):
        moment = start + timedelta(seconds=seconds)
        beat(database, old, PULSE, ttl=TTL, now=moment)
    beat(database, silent, PULSE, ttl=TTL, now=start)
    beats = [(worker, PULSE) for worker in (old, silent, new)]

    replies = beat_workers(database, beats, ttl=TTL, now=start + timedelta(seconds=60))

    assert [replies[worker.id].is_steady for worker, _ in beats] == [True, False, False]


def test_workers_that_one_call_beats_for_do_not_take_each_other_for_silent(
    database: Database,
) -> None:
    beats = [(make_identity(), PULSE) for _ in range(2)]
    start = timezone.now()
    later = start + timedelta(seconds=100)
    beat_workers(database, beats, ttl=TTL, now=start)

    replies = beat_workers(database, beats, ttl=TTL, now=later)
    assert {reply.is_someone_silent for reply in replies.values()} == {False}

    make_worker(last_seen_at=start)
    replies = beat_workers(database, beats, ttl=TTL, now=later)
    assert {reply.is_someone_silent for reply in replies.values()} == {True}


def test_a_beat_for_nobody_writes_nothing(database: Database) -> None:
    assert beat_workers(database, [], ttl=TTL) == {}
    assert not WorkerHeartbeat.objects.exists()


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
