"""The claim loop, step by step: notifications, locked rows and slow statements.

The worker is not started: the tests call the step of its claim loop, on a connection of
their own, and count the statements.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.models import Queue
from django_jobqueue.options import get_options
from django_jobqueue.storage.claims import Suspects
from django_jobqueue.storage.database import Database
from django_jobqueue.worker.claiming import backlog_poll
from django_jobqueue.worker.claiming import listener as listener_module
from django_jobqueue.worker.claiming.claimer import BURST_POLL_SECONDS
from django_jobqueue.worker.claiming.listener import Listener
from django_jobqueue.worker.running.connections import close_database, open_database
from django_jobqueue.worker.running.thread_pool import ThreadPool
from django_jobqueue.worker.worker import Worker
from tests.factories import make_job
from tests.testapp import jobs
from tests.waiting import wait_until

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def own(transactional_db: None) -> Iterator[Database]:
    """A worker's own connection."""
    db = open_database("default", name="test")
    yield db
    close_database(db)


@pytest.fixture
def worker() -> Worker:
    """A worker that starts none of the jobs it claims."""
    worker = Worker(get_options())
    worker.slots.add = lambda job: None  # type: ignore[method-assign,assignment]
    return worker


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every statement that goes through a Database handle."""
    seen: list[str] = []
    execute = Database.execute

    def note(self: Database, statement: str, *args: Any, **options: Any) -> list[Any]:
        seen.append(statement)
        return execute(self, statement, *args, **options)

    monkeypatch.setattr(Database, "execute", note)
    return seen


@pytest.fixture
def other_session(transactional_db: None) -> Iterator[Any]:
    """Another session, in a transaction."""
    import psycopg

    params = connection.get_connection_params()
    params.pop("cursor_factory")
    params.pop("context")
    with psycopg.connect(**params) as session:
        yield session
        session.rollback()


def lock_row(other_session: Any, id: UUID) -> None:
    other_session.execute("SELECT 1 FROM jobqueue_job WHERE id = %s FOR UPDATE", [id])


def run_steps(worker: Worker, db: Database, *, seconds: float) -> int:
    """Run steps as the loop does, for this long; return their number."""
    deadline = time.monotonic() + seconds
    count = 0
    while time.monotonic() < deadline:
        worker.claimer.loop.wakeup.clear()
        delay = worker.claimer.step(db)
        count += 1
        left = deadline - time.monotonic()
        worker.claimer.loop.wakeup.wait(max(0.0, min(delay, left)))
    return count


def make_listener(worker: Worker) -> Listener:
    assert isinstance(worker.listener, Listener)
    return worker.listener


def test_the_child_for_suspects_claims_one_job_at_a_time(
    own: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs claimed ahead would end with its process."""
    monkeypatch.setattr(Worker, "_choose_suspects", lambda self: Suspects.ONLY)
    worker = Worker(replace(get_options(), concurrency=1))
    worker.slots.add = lambda job: None  # type: ignore[method-assign,assignment]
    # As after many short jobs.
    prefetch = worker.claimer._room._prefetch
    prefetch._rate, prefetch._mean = 1000.0, 0.001
    for _ in range(5):
        make_job(isolate=True)
    worker.claimer.step(own)
    assert Job.objects.filter(status="running").count() == 1


def test_max_jobs_ends_when_all_claimed_jobs_have_started(
    own: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier, draining would release them: --once would end without a run."""
    # The claimed jobs wait for a thread that does not come.
    monkeypatch.setattr(ThreadPool, "_start_more", lambda self: None)
    worker = Worker(replace(get_options(), max_jobs=2))
    drained: list[bool] = []
    monkeypatch.setattr(worker.claimer, "_on_drained", lambda: drained.append(True))
    for _ in range(3):
        make_job()
    for _ in range(3):
        delay = worker.claimer.step(own)
    assert (drained, worker.slots.waiting) == ([], 2)
    assert delay <= BURST_POLL_SECONDS

    worker.slots.take_waiting()
    worker.claimer.step(own)
    assert drained == [True]
    assert Job.objects.filter(status="running").count() == 2


def test_unreadable_notifications_are_ignored_and_jobs_still_run(
    worker: Worker, own: Database
) -> None:
    worker.claimer.step(own)
    for payload in (
        '{"pending": {"a\\u0000b": 1}}',
        '{"pending": {"default": true}}',
        '{"pending": {"default": 1e400}}',
        '{"due": NaN}',
        json.dumps({"cancel": "x", "worker": str(worker.id)}),
        "[" * 7999,
    ):
        make_listener(worker)._handle(payload)
        worker.claimer.step(own)
    jobs.nothing.enqueue()

    make_listener(worker)._handle('{"pending": {"default": 1}}')
    worker.claimer.step(own)

    assert len(worker.in_flight) == 1


def test_names_of_unknown_queues_are_not_stored(worker: Worker) -> None:
    listener = make_listener(worker)
    for number in range(2_000):
        listener._handle(json.dumps({"pending": {f"q{number}": 1, f"r{number}": 2}}))

    assert worker.claimer._inbox.read().ranks == {}
    assert worker.claimer._env.shares.names == []


def test_a_new_queue_that_exists_is_found_by_a_poll(
    worker: Worker, own: Database
) -> None:
    worker.claimer.step(own)
    job = make_job(queue="brand-new")

    make_listener(worker)._handle('{"pending": {"brand-new": 1, "absent": 1}}')
    worker.claimer.step(own)

    assert worker.in_flight.find(job.pk) is not None
    assert worker.claimer._env.shares.names == ["brand-new"]


@pytest.mark.parametrize(
    "payload",
    ['{"pending": {"default": 1}}', '{"pending": {"absent": 1}}', '{"due": 0}'],
)
def test_a_flood_of_notifications_does_not_cause_a_query_each(
    worker: Worker, own: Database, statements: list[str], payload: str
) -> None:
    worker.claimer._env.shares.learn(["default"])
    run_steps(worker, own, seconds=0.1)
    statements.clear()
    for _ in range(2_000):
        make_listener(worker)._handle(payload)
        if worker.claimer.loop.wakeup.is_set():
            worker.claimer.loop.wakeup.clear()
            worker.claimer.step(own)

    # A burst of 20, with up to three statements each, and 20 a second.
    assert len(statements) < 200


def test_a_flood_of_notifications_does_not_delay_jobs_for_long(
    worker: Worker, own: Database
) -> None:
    run_steps(worker, own, seconds=0.1)
    for _ in range(200):
        make_listener(worker)._handle('{"pending": {"default": 1}}')
        worker.claimer.step(own)
    job = make_job()
    began = time.monotonic()
    make_listener(worker)._handle('{"pending": {"default": 1}}')

    wait_until(
        lambda: worker.claimer.step(own) and worker.in_flight.find(job.pk), pause=0.001
    )

    assert time.monotonic() - began < 0.5


def test_a_cancel_notification_without_a_request_in_the_row_is_ignored(
    worker: Worker, own: Database
) -> None:
    make_job()
    make_job()
    worker.claimer.step(own)
    untouched, cancelled = worker.in_flight.list()
    Job.objects.filter(pk=cancelled.claim.id).update(cancel_requested_at=timezone.now())

    for job in (untouched, cancelled):
        notice = {"cancel": str(job.claim.id), "worker": str(worker.id)}
        make_listener(worker)._handle(json.dumps(notice))
    worker.claimer.step(own)

    assert not untouched.flags.cancelled
    assert cancelled.flags.cancelled


def test_a_cancel_of_a_job_that_is_not_in_flight_is_ignored(
    worker: Worker, own: Database
) -> None:
    notice = {"cancel": str(uuid4()), "worker": str(worker.id)}
    make_listener(worker)._handle(json.dumps(notice))
    assert not worker.claimer._inbox.is_cancel_reported


def test_a_due_job_with_a_locked_row_does_not_make_the_loop_spin(
    worker: Worker, own: Database, other_session: Any, statements: list[str]
) -> None:
    past = timezone.now() - timedelta(seconds=5)
    job = make_job(scheduled=True, run_at=past)
    lock_row(other_session, job.pk)

    run_steps(worker, own, seconds=1.0)

    assert len(statements) < 40
    other_session.rollback()
    wait_until(lambda: worker.claimer.step(own) and worker.in_flight.find(job.pk))


def test_other_due_jobs_are_promoted_in_time_beside_a_locked_one(
    worker: Worker, own: Database, other_session: Any
) -> None:
    now = timezone.now()
    job = make_job(scheduled=True, run_at=now - timedelta(seconds=5))
    lock_row(other_session, job.pk)
    run_steps(worker, own, seconds=0.5)
    due = timezone.now() + timedelta(seconds=0.3)
    other = make_job(scheduled=True, run_at=due)
    worker.claimer.on_due_in(0.3)

    run_steps(worker, own, seconds=0.5)

    claimed = worker.in_flight.find(other.pk)
    assert claimed is not None
    assert claimed.claim.claimed_at - due < timedelta(seconds=0.15)


def test_a_pending_job_with_a_locked_row_does_not_make_the_loop_spin(
    worker: Worker, own: Database, other_session: Any, statements: list[str]
) -> None:
    lock_row(other_session, make_job().pk)

    run_steps(worker, own, seconds=1.0)

    assert len(statements) < 20


@pytest.mark.parametrize("is_due", [False, True])
def test_a_burst_ends_without_jobs_whose_rows_stay_locked(
    own: Database,
    other_session: Any,
    monkeypatch: pytest.MonkeyPatch,
    is_due: bool,
) -> None:
    monkeypatch.setattr(backlog_poll, "BURST_LOCK_WAIT_SECONDS", 0.2)
    worker = Worker(replace(get_options(), burst=True))
    past = timezone.now() - timedelta(seconds=5)
    job = make_job(scheduled=True, run_at=past) if is_due else make_job()
    lock_row(other_session, job.pk)

    run_steps(worker, own, seconds=0.1)
    assert not worker.is_asked_to_stop()
    run_steps(worker, own, seconds=0.3)

    assert worker.is_asked_to_stop()
    assert Job.objects.get().status == job.status


def test_a_burst_waits_for_a_row_that_is_locked_for_a_moment(
    own: Database, other_session: Any
) -> None:
    worker = Worker(replace(get_options(), burst=True))
    worker.slots.add = lambda job: None  # type: ignore[method-assign,assignment]
    job = make_job()
    lock_row(other_session, job.pk)
    run_steps(worker, own, seconds=0.2)
    assert not worker.is_asked_to_stop()

    other_session.rollback()

    wait_until(lambda: worker.claimer.step(own) and worker.in_flight.find(job.pk))
    assert not worker.is_asked_to_stop()


@pytest.fixture
def make_slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make each statement with this text exceed its time-out; "sweep": each sweep."""
    execute = Database.execute
    texts: list[str] = []

    def execute_or_time_out(
        self: Database, statement: str, parameters: Any, **options: Any
    ) -> list[Any]:
        is_sweep = parameters.get("lows", [None])[0] == -(1 << 63)
        if any(text in statement for text in texts) or ("sweep" in texts and is_sweep):
            with self.own.transaction():  # type: ignore[union-attr]
                self.own.execute("SET LOCAL statement_timeout = 1")  # type: ignore[union-attr]
                self.own.execute("SELECT pg_sleep(1)")  # type: ignore[union-attr]
        return execute(self, statement, parameters, **options)

    monkeypatch.setattr(Database, "execute", execute_or_time_out)
    return texts.append


def test_after_a_sweep_that_timed_out_jobs_are_claimed_by_the_cursors(
    worker: Worker, own: Database, make_slow: Callable[[str], None]
) -> None:
    make_slow("sweep")
    fresh = jobs.nothing.enqueue()

    run_steps(worker, own, seconds=0.2)

    assert worker.in_flight.find(fresh.pk) is not None


def test_jobs_that_the_cursors_miss_are_found_by_a_sweep_in_parts(
    worker: Worker, own: Database, make_slow: Callable[[str], None]
) -> None:
    make_slow("sweep")
    old = make_job(rank=round((time.time() - 600) * 1_000_000))

    wait_until(lambda: run_steps(worker, own, seconds=0.1) and len(worker.in_flight))

    assert worker.in_flight.find(old.pk) is not None


def test_after_a_poll_that_timed_out_jobs_of_known_queues_are_claimed(
    worker: Worker, own: Database, make_slow: Callable[[str], None]
) -> None:
    make_slow("RECURSIVE")
    Queue.objects.create(name="known")
    job = make_job(queue="known")
    past = timezone.now() - timedelta(seconds=5)
    due = make_job(queue="known", scheduled=True, run_at=past)

    run_steps(worker, own, seconds=0.2)

    assert {each.claim.id for each in worker.in_flight.list()} == {job.pk, due.pk}


def test_after_a_promotion_that_timed_out_claims_go_on(
    worker: Worker, own: Database, make_slow: Callable[[str], None]
) -> None:
    make_slow("status = 'pending',\n        rank")
    past = timezone.now() - timedelta(seconds=5)
    make_job(scheduled=True, run_at=past)
    job = make_job()

    assert run_steps(worker, own, seconds=0.3) < 30

    assert [each.claim.id for each in worker.in_flight.list()] == [job.pk]


def test_a_claim_by_the_cursors_that_timed_out_raises(
    worker: Worker, own: Database, make_slow: Callable[[str], None]
) -> None:
    import psycopg

    make_job()
    make_slow("WITH chosen")
    worker.claimer.step(own)
    with pytest.raises(psycopg.errors.QueryCanceled):
        worker.claimer.step(own)


def test_an_uncommitted_queue_row_does_not_stop_claims(
    worker: Worker,
    own: Database,
    other_session: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own.own.execute("SET lock_timeout = '50ms'")  # type: ignore[union-attr]
    other_session.execute("INSERT INTO jobqueue_queue (name) VALUES ('mail')")
    jobs.nothing.using(queue="mail").enqueue()
    jobs.nothing.enqueue()

    worker.claimer.step(own)

    assert Job.objects.counts()["running"] == 2
    assert "the names of queues cannot be written" in caplog.text

    # Written later, also without a new job in the queue.
    other_session.rollback()
    monkeypatch.setattr(worker.claimer._poll, "_write_queues_after", 0.0)
    worker.claimer._poll.request()
    worker.claimer.step(own)
    assert {"mail", "default"} <= set(Queue.objects.values_list("name", flat=True))


def test_a_job_enqueued_while_the_listener_is_disconnected_is_claimed_at_once(
    worker: Worker, own: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "NOTIFY_WAIT_SECONDS", 0.01)
    listener = make_listener(worker)
    first = open_database("default", name="listen")
    listener.step(first)
    worker.claimer.step(own)
    # It has listened for a while: the next poll is far away.
    worker.claimer._poll.listening_since = 0.0
    worker.claimer._poll.next_at = time.monotonic() + 15.0

    close_database(first)
    with pytest.raises(Exception, match="closed"):
        listener.step(first)
    assert worker.claimer.loop.wakeup.is_set()
    worker.claimer.step(own)
    assert worker.claimer._poll.next_at - time.monotonic() < 2.0

    worker.claimer._poll.next_at = time.monotonic() + 15.0
    jobs.nothing.enqueue()
    second = open_database("default", name="listen")
    listener.step(second)
    worker.claimer.step(own)
    close_database(second)

    assert Job.objects.get().status == "running"
