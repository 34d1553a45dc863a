"""Rows that somebody else holds: one delays itself only, never a batch."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_jobqueue import Job, JobSpec
from django_jobqueue.database_errors import is_lock_wait
from django_jobqueue.lifecycle import finish as finish_module
from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.lifecycle.finish import finish_attempts, finish_in_transaction
from django_jobqueue.lifecycle.promote import promote_jobs
from django_jobqueue.lifecycle.rescue import rescue_jobs
from django_jobqueue.models import WorkerHeartbeat
from django_jobqueue.options import Retention, get_options
from django_jobqueue.outcomes import Outcome, Succeeded
from django_jobqueue.storage.claims import Claim
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from django_jobqueue.storage.progress import write_progress
from django_jobqueue.storage.worker_rows import BeatValues, WorkerIdentity, beat_workers
from django_jobqueue.worker.running.connections import close_database, open_database
from tests.factories import make_job, make_worker
from tests.lifecycle.claiming import WORKER
from tests.lifecycle.test_finish import DIED, RETRIED, SNOOZED
from tests.testapp import jobs
from tests.waiting import wait_until

LOCK_WORKER = """
    SELECT 1
    FROM jobqueue_workerheartbeat
    WHERE id = %s
    FOR UPDATE NOWAIT
"""
IS_SOMEBODY_WAITING = """
    SELECT EXISTS (
        SELECT 1
        FROM pg_locks
        WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))
    )
"""
PULSE = BeatValues(state="running", processed=0, failed=0, running=0, memory=0)

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def own(transactional_db: None) -> Iterator[Database]:
    """A worker's own connection."""
    db = open_database("default", name="test")
    yield db
    close_database(db)


@pytest.fixture
def somebody(transactional_db: None) -> Iterator[Any]:
    """Another session, in a transaction of its own."""
    import psycopg

    params = connection.get_connection_params()
    params.pop("cursor_factory")
    params.pop("context")
    with psycopg.connect(**params) as session:
        yield session
        session.rollback()


def make_identity(id: UUID) -> WorkerIdentity:
    return WorkerIdentity(
        id=id, host="", pid=1, name="", queues={}, concurrency=1, version=""
    )


def hold(somebody: Any, id: UUID) -> None:
    somebody.execute("SELECT 1 FROM jobqueue_job WHERE id = %s FOR UPDATE", [id])


def test_one_held_row_of_200_is_finished_with_the_next_batch(
    own: Database, somebody: Any
) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(200))
    claims = claim_jobs(own, {"default": 200}, worker_id=WORKER)
    endings = [Ending(claim=claim, outcome=Succeeded()) for claim in claims]
    hold(somebody, claims[50].id)

    first = finish_attempts(own, endings, worker_id=WORKER, options=get_options())

    assert (len(first.done), len(first.lost)) == (199, 0)
    assert [ending.claim for ending in first.busy] == [claims[50]]
    assert Job.objects.counts()["succeeded"] == 199

    somebody.rollback()
    second = finish_attempts(own, first.busy, worker_id=WORKER, options=get_options())
    assert len(second.done) == 1
    assert Job.objects.counts()["succeeded"] == 200


@pytest.mark.parametrize("outcome", [SNOOZED, DIED, Succeeded()])
def test_a_held_row_keeps_no_other_end_from_being_written(
    own: Database, somebody: Any, outcome: Outcome
) -> None:
    options = get_options()
    if isinstance(outcome, Succeeded):
        # Then successes are deleted, by a statement of their own.
        retention = {**options.retention, "succeeded": Retention(age=timedelta())}
        options = replace(options, retention=retention)
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(3))
    claims = claim_jobs(own, {"default": 3}, worker_id=WORKER)
    endings = [Ending(claim=claim, outcome=outcome) for claim in claims]
    hold(somebody, claims[1].id)

    report = finish_attempts(own, endings, worker_id=WORKER, options=options)

    assert [ending.claim for ending in report.busy] == [claims[1]]
    assert (len(report.done), len(report.lost)) == (2, 0)


@pytest.mark.parametrize("outcome", [RETRIED, DIED], ids=type)
def test_an_uncommitted_attempt_row_keeps_no_other_end_from_being_written(
    own: Database, somebody: Any, outcome: Outcome
) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(20))
    claims = claim_jobs(own, {"default": 20}, worker_id=WORKER)
    endings = [Ending(claim=claim, outcome=outcome) for claim in claims]
    note_attempt(somebody, claims[7])
    own.own.execute("SET lock_timeout = '50ms'")  # type: ignore[union-attr]

    report = finish_attempts(own, endings, worker_id=WORKER, options=get_options())

    assert len(report.done) == 19
    [(left, error)] = report.unwritten
    assert ([ending.claim for ending in left], report.lost) == ([claims[7]], [])
    assert is_lock_wait(error)

    somebody.rollback()
    again = finish_attempts(own, left, worker_id=WORKER, options=get_options())
    assert len(again.done) == 1


def test_many_uncommitted_attempt_rows_delay_a_batch_by_a_bounded_time(
    own: Database, somebody: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(20))
    claims = claim_jobs(own, {"default": 20}, worker_id=WORKER)
    endings = [Ending(claim=claim, outcome=RETRIED) for claim in claims]
    for claim in claims[::2]:
        note_attempt(somebody, claim)
    own.own.execute("SET lock_timeout = '50ms'")  # type: ignore[union-attr]
    monkeypatch.setattr(finish_module, "LOCKED_SECONDS", 0.0)

    report = finish_attempts(own, endings, worker_id=WORKER, options=get_options())

    left = [ending for group in report.unwritten for ending in group.endings]
    assert len(left) + len(report.done) == 20
    assert len(report.unwritten) <= 3


def test_a_locked_table_is_not_blamed_on_the_endings(
    own: Database, somebody: Any
) -> None:
    import psycopg

    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(2))
    claims = claim_jobs(own, {"default": 2}, worker_id=WORKER)
    endings = [Ending(claim=claim, outcome=RETRIED) for claim in claims]
    somebody.execute("LOCK TABLE jobqueue_attempt IN EXCLUSIVE MODE")
    own.own.execute("SET lock_timeout = '50ms'")  # type: ignore[union-attr]

    with pytest.raises(psycopg.errors.LockNotAvailable):
        finish_attempts(own, endings, worker_id=WORKER, options=get_options())

    somebody.rollback()
    report = finish_attempts(own, endings, worker_id=WORKER, options=get_options())
    assert len(report.done) == 2


def note_attempt(somebody: Any, claim: Claim) -> None:
    somebody.execute(
        "INSERT INTO jobqueue_attempt (job_id, lease_token) VALUES (%s, %s)",
        [claim.id, claim.lease_token],
    )


def test_the_end_of_an_atomic_job_waits_for_whoever_holds_its_row(
    own: Database, somebody: Any
) -> None:
    jobs.nothing.enqueue()
    [claim] = claim_jobs(own, {"default": 1}, worker_id=WORKER)
    hold(somebody, claim.id)

    def finish() -> None:
        try:
            with transaction.atomic():
                finish_in_transaction(
                    Database(alias="default"),
                    Ending(claim=claim, outcome=Succeeded()),
                    worker_id=WORKER,
                    options=get_options(),
                )
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as executor:
        finished = executor.submit(finish)
        try:
            wait_until(lambda: is_waited_for(somebody) or finished.done())
        finally:
            somebody.rollback()
        finished.result(30)

    assert Job.objects.get().status == "succeeded"


def is_waited_for(somebody: Any) -> bool:
    """Tell whether another session waits for this one."""
    # Not asked by the session itself: a transaction sees the activity of its start.
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_stat_activity"
            " WHERE %s = ANY(pg_blocking_pids(pid)))",
            [somebody.info.backend_pid],
        )
        return bool(cursor.fetchone()[0])


def test_progress_passes_over_a_held_row(own: Database, somebody: Any) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(2))
    first, second = claim_jobs(own, {"default": 2}, worker_id=WORKER)
    hold(somebody, first.id)
    word = {"fraction": 0.5, "note": ""}

    lost = write_progress(own, {first: word, second: word}, worker_id=WORKER)

    assert lost == []
    assert Job.objects.get(progress__isnull=False).pk == second.id


def test_promote_passes_over_a_held_row(own: Database, somebody: Any) -> None:
    held, free = (make_job(scheduled=True) for _ in range(2))
    hold(somebody, held.pk)
    later = timezone.now() + timedelta(days=1)

    promote_jobs(own, limit=10, aging=get_options().aging, now=later)

    assert Job.objects.get(status="pending").pk == free.pk


@pytest.mark.parametrize("lost", [0, 9], ids=["goes back", "dies"])
def test_rescue_passes_over_a_job_whose_attempt_row_is_uncommitted(
    own: Database, somebody: Any, lost: int
) -> None:
    silent = make_worker(last_seen_at=timezone.now() - timedelta(minutes=5))
    held, free = (
        make_job(running=True, worker_id=silent.pk, lost=lost) for _ in range(2)
    )
    somebody.execute(
        "INSERT INTO jobqueue_attempt (job_id, lease_token) VALUES (%s, %s)",
        [held.pk, held.lease_token],
    )
    own.own.execute("SET lock_timeout = '50ms'")  # type: ignore[union-attr]

    report = rescue_jobs(own, options=get_options())

    assert [job.id for job in report.jobs] == [free.pk]
    assert len(report.unwritten) == 1


@pytest.mark.parametrize("lost", [0, 9], ids=["goes back", "dies"])
def test_rescue_passes_over_a_held_row(own: Database, somebody: Any, lost: int) -> None:
    silent = make_worker(last_seen_at=timezone.now() - timedelta(minutes=5))
    held, free = (
        make_job(running=True, worker_id=silent.pk, lost=lost) for _ in range(2)
    )
    hold(somebody, held.pk)

    assert [job.id for job in rescue_jobs(own, options=get_options()).jobs] == [free.pk]

    somebody.rollback()
    assert [job.id for job in rescue_jobs(own, options=get_options()).jobs] == [held.pk]


def test_claim_skips_jobs_locked_by_another_worker(
    own: Database, somebody: Any
) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(3))
    first = Job.objects.order_by("rank", "id").first()
    assert first is not None
    hold(somebody, first.pk)

    claims = claim_jobs(own, {"default": 3}, worker_id=WORKER)

    assert len(claims) == 2
    assert first.pk not in {claim.id for claim in claims}


def test_a_job_of_a_transaction_that_commits_late_is_claimed_after_younger_ones(
    own: Database, somebody: Any
) -> None:
    """Its rank is older than what was claimed meanwhile: it must not be stranded."""
    somebody.execute(
        "INSERT INTO jobqueue_job (id, job_type, queue, status, rank, payload)"
        " VALUES (gen_random_uuid(), 'testapp.nothing', 'default', 'pending', 1, '{}')"
    )
    Job.objects.enqueue("testapp.nothing")
    assert len(claim_jobs(own, {"default": 10}, worker_id=WORKER)) == 1

    somebody.commit()

    [late] = claim_jobs(own, {"default": 10}, worker_id=WORKER)
    assert late.rank == 1


def test_a_beat_for_several_workers_locks_them_in_the_order_of_their_ids(
    own: Database, somebody: Any
) -> None:
    """Two that beat for the same workers wait for each other, never in a circle."""
    import psycopg

    low, high = UUID(int=1), UUID(int=2)
    for id in (high, low):
        make_worker(id=id)
    # Given the wrong way round, and the lower one is held by somebody else.
    beats = [(make_identity(id), PULSE) for id in (high, low)]
    somebody.execute(LOCK_WORKER, [low])

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(beat_workers, own, beats, ttl=timedelta(seconds=30))
        wait_until(lambda: somebody.execute(IS_SOMEBODY_WAITING).fetchone()[0])
        somebody.execute(LOCK_WORKER, [high])
        # Our own lock_timeout, since we hold both: the beat comes again.
        with pytest.raises(psycopg.errors.LockNotAvailable):
            waiting.result()


@pytest.mark.parametrize("version", ["statements", "portable"])
def test_a_held_heartbeat_row_silences_no_other_worker(
    own: Database, somebody: Any, version: str
) -> None:
    long_ago = timezone.now() - timedelta(minutes=5)
    ids = [make_worker(last_seen_at=long_ago).pk for _ in range(2)] + [uuid4()]
    beats = [(make_identity(id), PULSE) for id in ids]
    somebody.execute(LOCK_WORKER, [ids[0]])
    own.own.execute("SET lock_timeout = '50ms'")  # type: ignore[union-attr]
    db = Database(alias="default", is_portable=True) if version == "portable" else own

    replies = beat_workers(db, beats, ttl=timedelta(seconds=30))

    assert set(replies) == set(ids[1:])
    fresh = WorkerHeartbeat.objects.filter(last_seen_at__gt=long_ago)
    assert set(fresh.values_list("pk", flat=True)) == set(ids[1:])
