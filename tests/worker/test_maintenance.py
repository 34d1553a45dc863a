"""Maintenance: goes on after errors, rescues only if steady, prunes in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models import F
from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.lifecycle import prune as prune_module
from django_jobqueue.lifecycle.rescue import RescueReport
from django_jobqueue.models import Attempt
from django_jobqueue.options import get_options
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Unwritten
from django_jobqueue.storage.worker_rows import BeatReply
from django_jobqueue.worker import maintenance as module
from django_jobqueue.worker.maintenance import Maintenance
from django_jobqueue.worker.worker import Worker
from tests.factories import make_job, make_worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def maintenance() -> Maintenance:
    """The maintenance of a worker that is not started and has a steady heartbeat."""
    worker = Worker(get_options())
    worker.heartbeat.reply = BeatReply(is_steady=True, is_someone_silent=True)
    worker.maintenance._next_rare = 0.0
    return worker.maintenance


def make_prunable_job() -> Job:
    yesterday = timezone.now() - timedelta(days=1)
    return make_job(
        succeeded=True,
        finished_at=yesterday - timedelta(days=1),
        prune_at=yesterday,
    )


@pytest.mark.postgresql
def test_pruning_goes_on_after_its_connection_was_ended(
    maintenance: Maintenance,
) -> None:
    make_prunable_job()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = cursor.fetchone()[0]
    _end_backend(backend)

    # The first step fails. The next one opens a new connection.
    maintenance.loop._try_step()
    maintenance._next_rare = 0.0
    maintenance.loop._try_step()
    maintenance.loop._close()

    assert not Job.objects.exists()


def _end_backend(backend: int) -> None:
    import psycopg

    params = connection.get_connection_params()
    params.pop("cursor_factory")
    params.pop("context")
    with psycopg.connect(**params) as session:
        session.execute("SELECT pg_terminate_backend(%s, 5000)", [backend])


def test_a_worker_rescues_only_while_its_own_heartbeat_is_steady(
    maintenance: Maintenance,
) -> None:
    silent = make_worker(last_seen_at=timezone.now() - timedelta(minutes=5))
    job = make_job(running=True, worker_id=silent.pk)
    maintenance._heartbeat.reply = BeatReply(is_steady=False, is_someone_silent=True)
    maintenance.loop._try_step()
    job.refresh_from_db()
    assert job.status == "running"

    maintenance._heartbeat.reply = BeatReply(is_steady=True, is_someone_silent=True)
    maintenance.loop._try_step()
    maintenance.loop._close()
    job.refresh_from_db()
    assert job.status == "pending"


def test_pruning_takes_a_batch_at_a_time_and_comes_back_soon(
    maintenance: Maintenance,
) -> None:
    long_ago = timezone.now() - timedelta(days=2)
    Job.objects.bulk_create(
        Job(
            job_type="testapp.nothing",
            status="succeeded",
            finished_at=long_ago,
            prune_at=long_ago + timedelta(days=1),
            worker_id=None,
            finished_by=uuid4(),
        )
        for _ in range(501)
    )

    delays = [maintenance.loop._try_step() for _ in range(3)]
    maintenance.loop._close()

    assert not Job.objects.exists()
    assert max(delays[:2]) < 0.1 < delays[2]


@pytest.mark.postgresql
def test_a_job_that_cannot_be_rescued_does_not_stop_pruning(
    maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker(last_seen_at=timezone.now() - timedelta(hours=2))
    make_job(running=True, worker_id=worker.pk)
    pruned = make_prunable_job()
    refused = Unwritten([], ValueError("refused"))
    report = RescueReport(unwritten=[refused])
    monkeypatch.setattr(module, "rescue_jobs", lambda *a, **k: report)
    db = Database(alias="default")

    assert maintenance.step(db) == module.PRUNE_PAUSE_SECONDS
    with pytest.raises(ValueError, match="refused"):
        maintenance.step(db)

    assert not Job.objects.filter(pk=pruned.pk).exists()


@pytest.mark.postgresql
def test_pruning_passes_over_a_job_with_a_locked_attempt(
    maintenance: Maintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_module, "BATCH_JOBS", 1)
    locked, free = make_prunable_job(), make_prunable_job()
    Job.objects.filter(pk=locked.pk).update(prune_at=F("prune_at") - timedelta(hours=1))
    for job in (locked, free):
        Attempt.objects.create(job_id=job.pk, lease_token=1)
    with open_session() as other_session:
        other_session.execute(
            "SELECT 1 FROM jobqueue_attempt WHERE job_id = %s FOR UPDATE", [locked.pk]
        )
        for _ in range(3):
            maintenance.loop._try_step()

        assert maintenance.loop.failures == 0
        assert list(Job.objects.values_list("pk", flat=True)) == [locked.pk]
        assert not maintenance._is_pruning

    maintenance._next_rare = 0.0
    maintenance.loop._try_step()
    maintenance.loop._close()
    assert not Job.objects.exists()
    assert not Attempt.objects.exists()


@pytest.mark.postgresql
def test_pruning_that_waits_too_long_for_a_lock_is_tried_later(
    maintenance: Maintenance,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(prune_module.LONG_WAITS, "lock_ms", 50)
    make_prunable_job()
    with open_session() as other_session:
        other_session.execute("LOCK TABLE jobqueue_attempt IN EXCLUSIVE MODE")
        maintenance.loop._try_step()
    maintenance.loop._close()

    assert maintenance.loop.failures == 0
    assert "pruning waited for too long" in caplog.text
    assert Job.objects.count() == 1


PROTECTIONS = {
    "foreign key": """
        CREATE TABLE invoice (
            job_id uuid REFERENCES jobqueue_job DEFERRABLE INITIALLY DEFERRED
        );
        INSERT INTO invoice SELECT id FROM jobqueue_job WHERE job_type = 'shop.kept'
    """,
    "trigger": """
        CREATE FUNCTION keep_job() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF old.job_type = 'shop.kept' THEN RAISE EXCEPTION 'kept'; END IF;
            RETURN old;
        END $$;
        CREATE TRIGGER keep_job BEFORE DELETE ON jobqueue_job
        FOR EACH ROW EXECUTE FUNCTION keep_job()
    """,
}


@pytest.fixture(params=PROTECTIONS)
def protect(request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """Protect jobs of the type shop.kept, as a project's foreign key or trigger may."""

    def run(statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    yield lambda: run(PROTECTIONS[request.param])
    run(
        "DROP TABLE IF EXISTS invoice;"
        "DROP TRIGGER IF EXISTS keep_job ON jobqueue_job;"
        "DROP FUNCTION IF EXISTS keep_job()"
    )


@pytest.mark.postgresql
def test_a_protected_job_does_not_stop_the_pruning_of_others(
    maintenance: Maintenance,
    protect: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = [make_prunable_job() for _ in range(40)]
    kept = {rows[0].pk, rows[17].pk}
    Job.objects.filter(pk__in=kept).update(job_type="shop.kept")
    protect()

    for _ in range(3):
        maintenance.loop._try_step()
    maintenance.loop._close()

    assert maintenance.loop.failures == 0
    assert set(Job.objects.values_list("pk", flat=True)) == kept
    assert caplog.text.count("a job cannot be pruned; passed over") == 2


@pytest.mark.postgresql
def test_a_silent_worker_with_a_locked_row_is_logged_once(
    maintenance: Maintenance, caplog: pytest.LogCaptureFixture
) -> None:
    silent = make_worker(last_seen_at=timezone.now() - timedelta(minutes=5))
    make_job(running=True, worker_id=silent.pk)
    with open_session() as other_session:
        other_session.execute("SELECT 1 FROM jobqueue_workerheartbeat FOR UPDATE")
        for _ in range(4):
            maintenance.loop._try_step()
    assert caplog.text.count("another session holds the row of a silent worker") == 1
    assert str(silent.pk) in caplog.text

    maintenance.loop._try_step()
    maintenance.loop._close()
    assert Job.objects.get().status == "pending"


def open_session() -> Any:
    import psycopg

    params = connection.get_connection_params()
    params.pop("cursor_factory")
    params.pop("context")
    return psycopg.connect(**params)
