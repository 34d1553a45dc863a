"""One unreadable row stops neither claims nor maintenance: its job is dead, and named.

Rows also come from SQL. Some values are refused by constraints, which tests/models
shows; here they are switched off, as for rows that are older than they.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from django_jobqueue import DeadJob, Job
from django_jobqueue.models import WorkerHeartbeat
from django_jobqueue.models.job import MOST_COUNTED
from django_jobqueue.options import get_options
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.worker_rows import BeatReply
from django_jobqueue.worker.running.connections import close_database, open_database
from django_jobqueue.worker.worker import Worker
from tests.factories import make_dead_job, make_job, make_worker
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

POSTGRESQL = [
    ("lease_token", "9223372036854775807"),
    ("attempts", "2147483647, lease_token = 2147483647"),
    ("expires_at", "'infinity'"),
    ("expires_at", "'-infinity'"),
    ("expires_at", "'12000-01-01'"),
    ("run_at", "'infinity'"),
    ("run_at", "'-infinity'"),
    ("run_at", "'0044-03-15 BC'"),
    ("timeout", "'170000000 years'"),
    ("unknown_since", "'infinity'"),
]
SQLITE = [
    ("id", "'not-a-uuid'"),
    ("id", "upper(id)"),
    ("id", "X'ff00ff'"),
    ("timeout", "'abc'"),
    ("lease_token", "'abc'"),
    ("attempts", "'abc'"),
    ("given_back", "'abc'"),
    ("max_attempts", "'abc'"),
    ("run_at", "'1x'"),
    ("run_at", "5"),
    ("expires_at", "'2026-13-01 00:00:00'"),
    ("unknown_since", "'2026-02-30 00:00:00'"),
    ("job_type", "CAST(X'ff' AS text)"),
    ("queue", "CAST(X'64ff' AS text)"),
    ("queue", "X'64656661756c74'"),
]
VALUES = [
    *(pytest.param(*case, marks=pytest.mark.postgresql) for case in POSTGRESQL),
    *(pytest.param(*case, marks=pytest.mark.sqlite) for case in SQLITE),
]


@pytest.fixture
def db() -> Iterator[Database]:
    """What a worker's loop has: on PostgreSQL a connection of its own."""
    db = open_database("default", name="test")
    yield db
    close_database(db)


@pytest.fixture
def unguarded(transactional_db: None) -> Iterator[None]:
    """Switch off the constraints that refuse such values."""
    if connection.vendor == "sqlite":
        execute("PRAGMA ignore_check_constraints = on")
        yield
        Job.objects.all()._raw_delete("default")
        execute("PRAGMA ignore_check_constraints = off")
        return
    names = ("jobqueue_job_counters", "jobqueue_job_times")
    texts = {}
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(
                "SELECT pg_get_constraintdef(oid)"
                " FROM pg_constraint WHERE conname = %s",
                [name],
            )
            texts[name] = cursor.fetchone()[0]
    for name in names:
        execute(f"ALTER TABLE jobqueue_job DROP CONSTRAINT {name}")
    yield
    execute("DELETE FROM jobqueue_job")
    for name, text in texts.items():
        execute(f"ALTER TABLE jobqueue_job ADD CONSTRAINT {name} {text}")


@pytest.fixture
def worker() -> Worker:
    """One that holds what it claims and starts nothing.

    Nothing beats for it: with the usual TTL it would claim nothing after 20 seconds.
    """
    worker = Worker(replace(get_options(), heartbeat_ttl=timedelta(hours=1)))
    worker.slots.add = lambda job: None  # type: ignore[method-assign,assignment]
    return worker


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def spoil(job: Job, column: str, value: str) -> None:
    id = job.pk.hex if connection.vendor == "sqlite" else str(job.pk)
    execute(f"UPDATE jobqueue_job SET {column} = {value} WHERE id = '{id}'")


def run_steps(worker: Worker, db: Database, *, count: int = 6) -> None:
    """As the loop does: an error closes nothing here, but is not expected either."""
    for _ in range(count):
        # As if the notification of what was given back had come.
        worker.claimer._poll.request()
        worker.claimer.step(db)
        if worker.finisher.unwritten:
            worker.finisher.step(db)


@pytest.mark.parametrize(("column", "value"), VALUES)
@pytest.mark.parametrize("status", ["pending", "scheduled"])
def test_the_unreadable_job_is_dead_and_named_and_all_others_are_claimed(
    worker: Worker,
    db: Database,
    unguarded: None,
    caplog: pytest.LogCaptureFixture,
    column: str,
    value: str,
    status: str,
) -> None:
    past = timezone.now() - timedelta(seconds=5)
    if status == "scheduled":
        offender = make_job(scheduled=True, run_at=past)
    else:
        offender = make_job()
    healthy = [make_job() for _ in range(5)]
    spoil(offender, column, value)

    with caplog.at_level(logging.ERROR, logger="django_jobqueue.jobs"):
        run_steps(worker, db)

    assert {each.claim.id for each in worker.in_flight.list()} == {
        job.pk for job in healthy
    }
    dead = DeadJob.objects.get()
    assert (dead.reason, dead.payload) == ("exception", {"x": 1})
    assert f" {column} = " in dead.error
    assert (dead.pk == offender.pk) == (column != "id")
    assert column in caplog.text
    assert not Job.objects.exclude(pk__in=[job.pk for job in healthy]).exists()


def test_what_cannot_be_shown_in_the_dead_letters_is_left_out_of_them(
    worker: Worker, db: Database, unguarded: None
) -> None:
    """The lists of the admin load every column."""
    job = make_job(unique_key="k", tags=["a"], attempts=2, lease_token=2)
    value = "'2026-13-01 00:00:00'" if connection.vendor == "sqlite" else "'infinity'"
    for column in ("created_at", "expires_at", "unknown_since"):
        spoil(job, column, value)

    run_steps(worker, db)

    dead = DeadJob.objects.get()
    assert (dead.unique_key, dead.tags) == ("k", ["a"])
    assert (dead.expires_at, dead.unknown_since) == (None, None)
    assert dead.lease_token > 2
    assert dead.requeue() is not None


def test_a_dead_job_of_the_same_id_is_kept(
    worker: Worker, db: Database, unguarded: None
) -> None:
    offender = make_job()
    make_dead_job(id=offender.pk, error="first")
    value = "'2026-13-01 00:00:00'" if connection.vendor == "sqlite" else "'infinity'"
    spoil(offender, "expires_at", value)

    run_steps(worker, db)

    assert DeadJob.objects.get(pk=offender.pk).error == "first"
    assert "expires_at" in DeadJob.objects.exclude(pk=offender.pk).get().error


def test_nothing_is_moved_after_an_error_that_no_row_caused(
    worker: Worker, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_job()

    def fail(*args: Any, **options: Any) -> None:
        raise ValueError("of another kind")

    monkeypatch.setattr(
        "django_jobqueue.worker.claiming.backlog_poll.read_backlog", fail
    )

    with pytest.raises(ValueError, match="of another kind"):
        worker.claimer.step(db)

    assert Job.objects.counts()["pending"] == 1
    assert not DeadJob.objects.exists()


def test_a_row_that_cannot_be_moved_is_cancelled(
    worker: Worker, db: Database, unguarded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    offender, healthy = make_job(), make_job()
    value = "'2026-13-01 00:00:00'" if connection.vendor == "sqlite" else "'infinity'"
    spoil(offender, "expires_at", value)

    def fail(*args: Any) -> None:
        raise ValueError("a trigger")

    monkeypatch.setattr("django_jobqueue.lifecycle.unreadable._move_to_dead", fail)
    run_steps(worker, db)

    assert [job.claim.id for job in worker.in_flight.list()] == [healthy.pk]
    rows = Job.objects.filter(status="cancelled").values_list("pk", flat=True)
    assert list(rows) == [offender.pk]


TRIGGER = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF new.job_type = 'shop.refused' THEN
            RAISE EXCEPTION 'no';
        ELSIF new.job_type = 'shop.withheld' THEN
            RETURN NULL;
        ELSIF new.job_type = 'shop.slow' THEN
            PERFORM pg_sleep(20);
        END IF;
        RETURN new;
    END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON jobqueue_job
    FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@pytest.fixture
def trigger(transactional_db: None) -> Iterator[None]:
    """A trigger of the user's that refuses any change of one type of job."""
    execute(TRIGGER)
    yield
    execute("DROP TRIGGER refuse ON jobqueue_job; DROP FUNCTION refuse()")


@pytest.mark.postgresql
def test_a_row_that_a_trigger_refuses_stops_no_other(
    worker: Worker, db: Database, trigger: None
) -> None:
    refused = make_job(job_type="shop.refused")
    healthy = [make_job() for _ in range(5)]

    worker.claimer.step(db)

    assert {each.claim.id for each in worker.in_flight.list()} == {
        job.pk for job in healthy
    }
    assert Job.objects.get(pk=refused.pk).status == "pending"
    assert not DeadJob.objects.exists()


@pytest.mark.postgresql
def test_rows_that_a_trigger_withholds_in_silence_starve_no_other(
    worker: Worker,
    db: Database,
    trigger: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as there are slots, and more than one fallback looks at."""
    # On a busy machine a healthy row may take longer than a row may, and a refused one
    # may be due again before all others were tried.
    monkeypatch.setattr("django_jobqueue.storage.row_by_row.EACH_ROW_MS", 60_000)
    monkeypatch.setattr(
        "django_jobqueue.worker.claiming.claim_errors.REFUSED_ROW_SECONDS", 3600.0
    )
    withheld = [make_job(job_type="shop.withheld", rank=1) for _ in range(230)]
    healthy = [make_job(rank=2) for _ in range(5)]

    def step_until_claimed(count: int) -> bool:
        # A check comes with a sweep, and the pause after a sweep is twenty times as
        # long as the sweep took: minutes on a busy machine.
        worker.claimer._row_by_row._next_check = 0.0
        worker.claimer._env.cursors._sweep.next_at = 0.0
        run_steps(worker, db, count=1)
        return len(worker.in_flight) == count

    with caplog.at_level(logging.WARNING, logger="django_jobqueue.worker"):
        wait_until(lambda: step_until_claimed(len(healthy)), timeout=90)

    assert {each.claim.id for each in worker.in_flight.list()} == {
        job.pk for job in healthy
    }
    assert caplog.text.count("a job cannot be claimed; passed over") == len(withheld)


@pytest.mark.postgresql
def test_a_claim_whose_trigger_sleeps_starves_no_other(
    worker: Worker, db: Database, trigger: None
) -> None:
    assert db.own is not None
    db.own.execute("SET statement_timeout = '300ms'")
    now = time.time_ns() // 1000
    make_job(job_type="shop.slow", rank=now - 10)
    healthy = [make_job(rank=now) for _ in range(5)]

    run_steps(worker, db, count=4)

    assert {each.claim.id for each in worker.in_flight.list()} == {
        job.pk for job in healthy
    }


@pytest.mark.postgresql
def test_a_promotion_whose_trigger_sleeps_delays_no_other(
    worker: Worker,
    db: Database,
    trigger: None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert db.own is not None
    db.own.execute("SET statement_timeout = '300ms'")
    long_ago = timezone.now() - timedelta(minutes=5)
    make_job(job_type="shop.slow", status="scheduled", run_at=long_ago)
    first = [make_job(status="scheduled", run_at=timezone.now()) for _ in range(3)]

    with caplog.at_level(logging.WARNING, logger="django_jobqueue.worker"):
        run_steps(worker, db, count=2)
    assert {each.claim.id for each in worker.in_flight.list()} == {
        job.pk for job in first
    }
    assert "a job cannot be promoted; passed over" in caplog.text

    # It is known now, and costs nothing: the batch works without the fallback.
    def fail(*args: Any, **options: Any) -> None:
        raise AssertionError("promoted row by row again")

    monkeypatch.setattr("django_jobqueue.worker.claiming.promoter.promote_each", fail)
    second = make_job(status="scheduled", run_at=timezone.now())
    worker.claimer._promoter.next_due = 0.0
    run_steps(worker, db, count=1)
    assert Job.objects.get(pk=second.pk).status == "running"


def test_the_lowest_rank_and_id_are_claimed(worker: Worker, db: Database) -> None:
    job = make_job(id=UUID(int=0), rank=-(2**63))

    run_steps(worker, db, count=1)

    assert [each.claim.id for each in worker.in_flight.list()] == [job.pk]


@pytest.mark.postgresql
def test_where_a_trigger_refuses_every_row_the_error_is_reported(
    worker: Worker, db: Database, trigger: None
) -> None:
    import psycopg

    make_job(job_type="shop.refused")

    with pytest.raises(psycopg.errors.RaiseException):
        worker.claimer.step(db)


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("column", "value"),
    [("id", "'junk'"), ("timeout", "'abc'"), ("worker_id", "'junk'")],
)
def test_an_unreadable_running_job_does_not_stop_rescue(
    worker: Worker, db: Database, unguarded: None, column: str, value: str
) -> None:
    silent = make_worker(last_seen_at=timezone.now() - timedelta(days=5))
    offender, healthy = (make_job(running=True, worker_id=silent.pk) for _ in range(2))
    spoil(offender, column, value)
    worker.heartbeat.reply = BeatReply(is_steady=True, is_someone_silent=True)

    for _ in range(3):
        worker.maintenance.step(db)

    assert Job.objects.get(pk=healthy.pk).status == "pending"
    assert column in DeadJob.objects.get().error


@pytest.mark.sqlite
@pytest.mark.parametrize("value", ["'junk'", "X'00ff'"])
def test_an_unreadable_heartbeat_does_not_stop_rescue(
    worker: Worker,
    db: Database,
    unguarded: None,
    caplog: pytest.LogCaptureFixture,
    value: str,
) -> None:
    long_ago = timezone.now() - timedelta(days=5)
    offender, silent = (make_worker(last_seen_at=long_ago) for _ in range(2))
    job = make_job(running=True, worker_id=silent.pk)
    execute(
        f"UPDATE jobqueue_workerheartbeat SET id = {value} "
        f"WHERE id = '{offender.pk.hex}'"
    )
    worker.heartbeat.reply = BeatReply(is_steady=True, is_someone_silent=True)

    for _ in range(3):
        worker.maintenance.step(db)

    assert Job.objects.get(pk=job.pk).status == "pending"
    assert "the row of a worker cannot be read; deleted" in caplog.text
    assert [row.pk for row in WorkerHeartbeat.objects.all()] == [silent.pk]


@pytest.mark.sqlite
def test_an_unreadable_ended_job_does_not_stop_prune(
    worker: Worker, db: Database, unguarded: None
) -> None:
    past = timezone.now() - timedelta(days=2)
    offender, healthy = (
        make_job(succeeded=True, finished_at=past, prune_at=past + timedelta(days=1))
        for _ in range(2)
    )
    spoil(offender, "id", "'junk'")
    worker.maintenance._next_rare = 0.0

    for _ in range(3):
        worker.maintenance.step(db)
        worker.maintenance._next_rare = 0.0

    assert not Job.objects.filter(pk=healthy.pk).exists()
    assert "id = 'junk'" in DeadJob.objects.get().error


@pytest.mark.postgresql
def test_a_due_row_that_a_trigger_refuses_keeps_no_other_from_its_promotion(
    worker: Worker, db: Database, trigger: None
) -> None:
    long_ago = timezone.now() - timedelta(minutes=5)
    refused = make_job(job_type="shop.refused", status="scheduled", run_at=long_ago)
    due = [make_job(status="scheduled", run_at=timezone.now()) for _ in range(3)]
    pending = make_job()

    run_steps(worker, db)

    refused.refresh_from_db()
    assert refused.status == "scheduled"
    for job in [*due, pending]:
        job.refresh_from_db()
        assert job.status == "running"


def test_a_row_at_the_bound_is_dead_before_a_claim_could_exceed_it(
    worker: Worker, db: Database
) -> None:
    at_bound = make_job()
    spoil(at_bound, "attempts", f"{MOST_COUNTED - 1}, lease_token = {MOST_COUNTED}")
    other = make_job()

    run_steps(worker, db)

    other.refresh_from_db()
    assert other.status == "running"
    assert DeadJob.objects.get(pk=at_bound.pk).reason == "exception"
