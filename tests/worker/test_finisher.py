"""The finisher reports each end once; one that cannot be written delays no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections

from django_jobqueue import DeadJob, Job, JobSpec
from django_jobqueue.lifecycle import finish as finish_module
from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import Outcome, Succeeded
from django_jobqueue.signals import job_cancelled, job_succeeded, lease_lost
from django_jobqueue.storage import endings as endings_module
from django_jobqueue.storage.claims import Claim
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending, split_endings
from django_jobqueue.worker import finisher as finisher_module
from django_jobqueue.worker import parking
from django_jobqueue.worker.finisher import MAX_UNWRITTEN_ENDINGS
from django_jobqueue.worker.worker import Worker
from tests.lifecycle.test_finish import DIED, RETRIED
from tests.testapp.jobs import nothing
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

DB = Database(alias="default")
REFUSE_POSTGRES = """
    CREATE FUNCTION refuse_bad() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF OLD.job_type = 'testapp.add' AND OLD.status = 'running' THEN
            {action};
        END IF;
        RETURN coalesce(NEW, OLD);
    END $$;
    CREATE TRIGGER refuse_bad BEFORE UPDATE OR DELETE ON jobqueue_job
    FOR EACH ROW EXECUTE FUNCTION refuse_bad()
"""
REFUSE_SQLITE = """
    CREATE TRIGGER refuse_bad BEFORE UPDATE ON jobqueue_job
    WHEN OLD.job_type = 'testapp.add' AND OLD.status = 'running'
    BEGIN SELECT RAISE(ABORT, 'not this one'); END
"""


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker that is not started and starts no jobs."""
    worker = Worker(get_options())
    worker.slots.close()
    yield worker
    connections.close_all()


@pytest.fixture
def refuse() -> Iterator[Callable[..., None]]:
    """Make the database refuse the ends of testapp.add, by a trigger."""

    def create(action: str = "RAISE EXCEPTION 'not this one'") -> None:
        is_postgres = connection.vendor == "postgresql"
        text = REFUSE_POSTGRES.format(action=action) if is_postgres else REFUSE_SQLITE
        with connection.cursor() as cursor:
            cursor.execute(text)

    yield create
    drop()


def drop() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("DROP TRIGGER IF EXISTS refuse_bad ON jobqueue_job")
            cursor.execute("DROP FUNCTION IF EXISTS refuse_bad()")
        else:
            cursor.execute("DROP TRIGGER IF EXISTS refuse_bad")


def claim_all(worker: Worker, *, bad: int, good: int) -> list[Claim]:
    specs = [JobSpec("testapp.add", {"x": n}) for n in range(bad)]
    specs += [JobSpec("testapp.nothing") for _ in range(good)]
    Job.objects.enqueue_many(specs)
    claims = claim_jobs(DB, {"default": len(specs)}, worker_id=worker.id)
    worker.in_flight.add(claims)
    return claims


@pytest.mark.parametrize(
    "outcome",
    [
        Succeeded("1"),
        RETRIED,
        # SQLite's trigger here is for updates only.
        pytest.param(DIED, marks=pytest.mark.postgresql),
    ],
    ids=type,
)
def test_an_end_that_a_trigger_refuses_does_not_stop_the_others(
    worker: Worker,
    refuse: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Outcome,
) -> None:
    monkeypatch.setattr(parking, "FIRST_RETRY_SECONDS", 0.0)
    claims = claim_all(worker, bad=2, good=20)
    refuse()
    with caplog.at_level(logging.ERROR, "django_jobqueue.worker"):
        for claim in claims:
            worker.finisher.put(Ending(claim=claim, outcome=outcome))
        for _ in range(3):
            worker.finisher.step(DB)

    left = Job.objects.filter(status="running")
    assert set(left.values_list("job_type", flat=True)) == {"testapp.add"}
    assert (left.count(), worker.finisher.unwritten, len(worker.in_flight)) == (2, 2, 2)
    assert worker.finisher.parked_since is not None
    assert worker.finisher.failing_since is None
    # Logged once each, however often they were tried.
    assert caplog.text.count("the end of a job cannot be written") == 2
    assert "not this one" in caplog.text

    drop()
    wait_until(lambda: step_until_empty(worker))
    assert not Job.objects.filter(status="running").exists()
    # Their outcomes are written later, unchanged.
    done = Job.objects.filter(job_type="testapp.add", status="succeeded")
    expected = [1, 1] if isinstance(outcome, Succeeded) else []
    assert list(done.values_list("result", flat=True)) == expected
    assert DeadJob.objects.count() == (22 if outcome is DIED else 0)
    assert worker.finisher.parked_since is None


def step_until_empty(worker: Worker) -> bool:
    worker.finisher.step(DB)
    return worker.finisher.unwritten == 0


@pytest.mark.postgresql
def test_an_end_that_times_out_is_isolated_and_the_others_are_written(
    worker: Worker, refuse: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "SINGLE_REST_FACTOR", 0.0)
    monkeypatch.setattr(parking, "GROUP_REST_FACTOR", 0.0)
    claims = claim_all(worker, bad=1, good=20)
    refuse("PERFORM pg_sleep(30)")
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = '100ms'")
    for claim in claims:
        worker.finisher.put(Ending(claim=claim, outcome=Succeeded("7")))

    def is_alone() -> bool:
        worker.finisher.step(DB)
        return worker.finisher.unwritten == 1

    wait_until(is_alone)
    assert Job.objects.filter(status="succeeded").count() == 20

    # It was only slow: its result is written later.
    drop()
    wait_until(lambda: step_until_empty(worker))
    assert Job.objects.get(job_type="testapp.add").result == 7


def test_a_statement_has_a_limit_of_bytes(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = claim_all(worker, bad=0, good=7)
    result = Succeeded('"' + 90 * "x" + '"')
    ends = [Ending(claim=claim, outcome=result) for claim in claims]
    monkeypatch.setattr(endings_module, "MAX_STATEMENT_BYTES", 200)
    assert [len(part) for part in split_endings(ends)] == [2, 2, 2, 1]
    assert [len(part) for part in split_endings(ends, most=1)] == [1] * 7
    # A larger one is written alone.
    monkeypatch.setattr(endings_module, "MAX_STATEMENT_BYTES", 50)
    assert [len(part) for part in split_endings(ends)] == [1] * 7

    for ending in ends:
        worker.finisher.put(ending)
    worker.finisher.step(DB)
    assert Job.objects.filter(status="succeeded", result=90 * "x").count() == 7


@pytest.mark.postgresql
@pytest.mark.parametrize("retention", ["kept", "none"])
def test_ends_written_before_the_connection_broke_are_reported_once(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, settings: Any, retention: str
) -> None:
    if retention == "none":
        settings.JOBQUEUE = {"RETENTION": {"succeeded": 0}}
        worker = Worker(get_options())
    reported: list[Any] = []
    lost: list[Any] = []

    def note(**values: Any) -> None:
        reported.append(values["job_id"])

    def note_lost(**values: Any) -> None:
        lost.append(values["job_id"])

    job_succeeded.connect(note)
    lease_lost.connect(note_lost)
    claims = claim_all(worker, bad=0, good=6)
    written = finish_module._note_written
    calls = []

    def lose_the_reply(*args: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise ConnectionLost
        written(*args)

    class ConnectionLost(Exception):
        """Stands for an error of the driver."""

    monkeypatch.setattr(endings_module, "MAX_STATEMENT_BYTES", 20)
    monkeypatch.setattr(finish_module, "_note_written", lose_the_reply)
    try:
        for claim in claims:
            worker.finisher.put(Ending(claim=claim, outcome=Succeeded('"123456789"')))
        with pytest.raises(ConnectionLost):
            worker.finisher.step(DB)
        assert worker.finisher.failing_since is not None
        wait_until(lambda: step_until_empty(worker))
    finally:
        job_succeeded.disconnect(note)
        lease_lost.disconnect(note_lost)

    assert sorted(reported) == sorted(claim.id for claim in claims)
    assert lost == []


def test_a_worker_with_too_many_unwritten_ends_claims_nothing(worker: Worker) -> None:
    claims = claim_all(worker, bad=0, good=1)
    assert worker.claimer._room.count() > 0
    for _ in range(MAX_UNWRITTEN_ENDINGS + 1):
        worker.finisher._inbox.put(None)

    assert worker.claimer._room.count() == 0

    worker.finisher.put(Ending(claim=claims[0], outcome=Succeeded()))
    wait_until(lambda: step_until_empty(worker))
    assert worker.claimer._room.count() > 0


def test_a_job_with_a_cancel_request_is_reported_as_cancelled(worker: Worker) -> None:
    reported: list[Any] = []

    def note(**values: Any) -> None:
        reported.append((values["job_id"], values["reason"]))

    [claim] = claim_all(worker, bad=0, good=1)
    Job.objects.get().cancel()
    job_cancelled.connect(note)
    try:
        worker.finisher.put(Ending(claim=claim, outcome=RETRIED))
        worker.finisher.step(DB)
    finally:
        job_cancelled.disconnect(note)

    assert reported == [(claim.id, "cancelled while running")]


@pytest.mark.postgresql
def test_an_end_is_reported_once_although_its_notification_failed(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise ValueError("no notification")

    monkeypatch.setattr(finisher_module, "notify_pending", fail)
    seen: list[Any] = []
    receiver = lambda sender, job_id, **kwargs: seen.append(job_id)  # noqa: E731
    job_succeeded.connect(receiver)
    try:
        nothing.enqueue()
        [claim] = claim_jobs(DB, {"default": 1}, worker_id=worker.id)
        worker.in_flight.add([claim])
        worker.finisher.put(Ending(claim=claim, outcome=Succeeded()))
        with pytest.raises(ValueError, match="no notification"):
            worker.finisher.step(DB)
        assert worker.finisher.unwritten == 0
    finally:
        job_succeeded.disconnect(receiver)
    assert seen == [claim.id]
