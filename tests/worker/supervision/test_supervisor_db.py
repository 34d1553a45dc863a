"""The supervisor's database thread: children may end at any moment of a beat."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.lifecycle.finish import FinishReport
from django_jobqueue.lifecycle.rescue import find_silent_workers
from django_jobqueue.models import DeadJob, Job, WorkerHeartbeat
from django_jobqueue.options import get_options, make_options
from django_jobqueue.signals import job_died
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.worker_rows import BeatValues
from django_jobqueue.worker import receivers as receivers_module
from django_jobqueue.worker.heartbeat import make_identity
from django_jobqueue.worker.supervision import supervisor_db as module
from django_jobqueue.worker.supervision.deaths import Death
from django_jobqueue.worker.supervision.shared_memory import SharedMemory
from django_jobqueue.worker.supervision.supervisor_db import SupervisorDb
from tests.testapp import jobs
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


class StubChild:
    """A child without a process."""

    def __init__(self, places: int = 1) -> None:
        self.id = uuid4()
        self.identity = make_identity(self.id, get_options())
        self.shared_memory = SharedMemory(places)
        self.has_exited = False
        self.is_isolated = False

    def read_beat_values(self) -> BeatValues:
        running = self.shared_memory.counts.running
        return BeatValues(
            state="running", processed=0, failed=0, running=running, memory=0
        )


@pytest.mark.parametrize("is_known", [False, True], ids=["first beat", "later beat"])
def test_child_that_ends_during_a_beat_harms_no_other(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    db = Database(alias="default")
    supervisor_db = SupervisorDb(get_options(), on_suspects=lambda: None)
    gone: Any = StubChild()
    other: Any = StubChild()
    supervisor_db.add(gone)
    if is_known:
        supervisor_db.step(db)
    supervisor_db.add(other)
    beat_workers = module.beat_workers

    def beat_and_die(*args: Any, **options: Any) -> Any:
        replies = beat_workers(*args, **options)
        supervisor_db.record_death(Death(child=gone, is_clean=True))
        gone.shared_memory.close_file()
        return replies

    monkeypatch.setattr(module, "beat_workers", beat_and_die)
    supervisor_db.step(db)

    assert other.shared_memory.confirmed
    assert [row.pk for row in WorkerHeartbeat.objects.all()] == [other.id]


def test_child_whose_process_has_ended_gets_no_beat() -> None:
    """Its death may never be recorded: then other workers rescue its jobs."""
    db = Database(alias="default")
    supervisor_db = SupervisorDb(get_options(), on_suspects=lambda: None)
    gone: Any = StubChild()
    other: Any = StubChild()
    supervisor_db.add(gone)
    supervisor_db.add(other)
    supervisor_db.step(db)
    before = gone.shared_memory.confirmed
    gone.has_exited = True
    supervisor_db._next_beat = 0.0
    supervisor_db.step(db)

    assert gone.shared_memory.confirmed == before
    assert other.shared_memory.confirmed > before


@pytest.mark.parametrize("is_shutdown", [False, True], ids=["killed", "shutdown"])
@pytest.mark.parametrize("place", ["inside", "kept", "waiting"])
def test_a_job_of_one_attempt_that_has_started_does_not_start_again(
    place: str, is_shutdown: bool
) -> None:
    """No job is to blame for the end of its process, but the promise holds."""
    db = Database(alias="default")
    supervisor_db = SupervisorDb(get_options(), on_suspects=lambda: None)
    child: Any = StubChild()
    supervisor_db.add(child)
    supervisor_db.step(db)
    jobs.add.using(max_attempts=1).enqueue(x=1)
    [claim] = claim_jobs(db, {"default": 1}, worker_id=child.id)
    if place == "inside":
        now = time.monotonic()
        child.shared_memory.enter(claim, entered=now, limit=now + 60, most=1)
    elif place == "kept":
        child.shared_memory.keep(claim)

    supervisor_db.record_death(
        Death(
            child=child,
            attempts=list(child.shared_memory.read_running()),
            kept=child.shared_memory.read_kept(),
            exit="was killed by SIGKILL",
            is_shutdown=is_shutdown,
        )
    )
    supervisor_db.step(db)

    # What a shutdown gives back may start again; what has run may not.
    is_dead = place == "kept" or (place == "inside" and not is_shutdown)
    assert DeadJob.objects.exists() is is_dead
    if is_dead:
        assert "was killed by SIGKILL" in DeadJob.objects.get().error
    else:
        assert (Job.objects.get().status, Job.objects.get().attempts) == ("pending", 0)


@pytest.mark.parametrize("is_isolated", [False, True])
def test_the_last_crash_of_a_suspect_requests_a_process_for_the_others(
    is_isolated: bool,
) -> None:
    db = Database(alias="default")
    calls: list[str] = []
    supervisor_db = SupervisorDb(
        get_options(), on_suspects=lambda: calls.append("suspects")
    )
    child: Any = StubChild()
    child.is_isolated = is_isolated
    supervisor_db.add(child)
    supervisor_db.step(db)
    jobs.add.using(max_attempts=1).enqueue(x=1)
    [claim] = claim_jobs(db, {"default": 1}, worker_id=child.id)
    now = time.monotonic()
    child.shared_memory.enter(claim, entered=now, limit=now + 60, most=1)

    running = list(child.shared_memory.read_running())
    supervisor_db.record_death(
        Death(child=child, attempts=running, cause="killed by SIGSEGV")
    )
    supervisor_db.step(db)

    assert DeadJob.objects.get().reason == "crashed"
    assert calls == ["suspects"] * is_isolated


def test_crashes_of_two_job_types_or_causes_have_different_fingerprints() -> None:
    db = Database(alias="default")
    fingerprints = set()
    add = partial(jobs.add.using(max_attempts=1).enqueue, x=1)
    sleep = partial(jobs.sleep_briefly.using(max_attempts=1).enqueue, seconds=0)
    segfault, kill = "was killed by SIGSEGV", "was killed by SIGKILL"
    for enqueue, cause in (
        (add, segfault),
        (sleep, segfault),
        (add, kill),
        (add, segfault),
    ):
        supervisor_db = SupervisorDb(get_options(), on_suspects=lambda: None)
        child: Any = StubChild()
        supervisor_db.add(child)
        supervisor_db.step(db)
        job = enqueue()
        [claim] = claim_jobs(db, {"default": 1}, worker_id=child.id)
        now = time.monotonic()
        child.shared_memory.enter(claim, entered=now, limit=now + 60, most=1)
        running = list(child.shared_memory.read_running())
        supervisor_db.record_death(Death(child=child, attempts=running, cause=cause))
        supervisor_db.step(db)
        fingerprints.add(DeadJob.objects.get(pk=job.pk).fingerprint)
    assert len(fingerprints) == 3


class BlockedHandler(logging.Handler):
    """Writes to a pipe that is not read."""

    def __init__(self) -> None:
        super().__init__()
        self.freed = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.freed.wait(30)


def test_a_log_that_is_blocked_stops_no_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = iter([RuntimeError("first beat"), None, RuntimeError("third beat")])
    beat_workers = module.beat_workers

    def beat_or_fail(*args: Any, **options: Any) -> Any:
        if (error := next(errors, None)) is not None:
            raise error
        return beat_workers(*args, **options)

    monkeypatch.setattr(module, "beat_workers", beat_or_fail)
    handler = BlockedHandler()
    log = logging.getLogger("django_jobqueue.worker")
    log.addHandler(handler)
    supervisor_db = SupervisorDb(
        make_options({"heartbeat_interval": 0.05, "heartbeat_ttl": 10}),
        on_suspects=lambda: None,
    )
    child: Any = StubChild()
    supervisor_db.add(child)
    supervisor_db.loop.start()
    try:
        wait_until(lambda: bool(child.shared_memory.confirmed))
        first = child.shared_memory.confirmed
        wait_until(
            lambda: (
                supervisor_db.loop.steps > 6 and child.shared_memory.confirmed > first
            )
        )
        assert module.logger.measure_delay(time.monotonic()) > 0
    finally:
        handler.freed.set()
        log.removeHandler(handler)
        supervisor_db.finish()
        assert supervisor_db.loop.join(10)
        assert module.logger.flush(10)


class Overrun:
    """A job that ran past its limit in a child, and the supervisor's thread."""

    def __init__(self, ttl: float) -> None:
        self.ttl = timedelta(seconds=ttl)
        self.supervisor_db = SupervisorDb(
            make_options({"heartbeat_interval": 0.05, "heartbeat_ttl": ttl}),
            on_suspects=lambda: None,
        )
        self.supervisor_db.loop.start()
        self.child: Any = StubChild()
        self.supervisor_db.add(self.child)
        wait_until(lambda: bool(self.child.shared_memory.confirmed))
        self.job = jobs.add.using(max_attempts=1).enqueue(x=1)
        db = Database(alias="default")
        [claim] = claim_jobs(db, {"default": 1}, worker_id=self.child.id)
        now = time.monotonic()
        self.child.shared_memory.enter(claim, entered=now - 60, limit=now - 1, most=1)

    def end(self) -> None:
        [attempt] = self.child.shared_memory.read_running()
        self.child.shared_memory.mark_ended_by_supervisor(attempt)
        self.supervisor_db.end_attempt(self.child, attempt)

    def record_death(self) -> None:
        """As after a child that ended well: only the overrun was left."""
        self.supervisor_db.record_death(
            Death(child=self.child, exit="exited with code 0", is_clean=True)
        )

    def stop(self) -> None:
        self.supervisor_db.finish()
        assert self.supervisor_db.loop.join(10)


@pytest.fixture
def overrun(request: pytest.FixtureRequest) -> Iterator[Overrun]:
    overrun = Overrun(getattr(request, "param", 0.15))
    yield overrun
    overrun.stop()


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("what", "overrun"),
    # The TTL is longer than one lock_timeout if there is one to wait for.
    [("the row", 0.3), ("the attempts", 1.6)],
    indirect=["overrun"],
)
def test_the_end_of_an_overdue_attempt_waits_for_a_lock(
    overrun: Overrun, what: str
) -> None:
    """However long the lock is held, and whether or not its child lives."""
    import psycopg

    params = connection.get_connection_params()
    params.pop("cursor_factory")
    params.pop("context")
    with psycopg.connect(**params) as other:
        if what == "the row":
            sql = "SELECT 1 FROM jobqueue_job WHERE id = %s FOR UPDATE"
            other.execute(sql, [overrun.job.pk])
        else:
            other.execute("LOCK TABLE jobqueue_attempt IN SHARE MODE")
        overrun.end()
        # Longer than two TTLs, or than one lock_timeout.
        time.sleep(0.7 if what == "the row" else 1.1)
        overrun.record_death()
        time.sleep(1.2 * overrun.ttl.total_seconds())
        # Else a rescue would take it for lost once the lock is gone.
        silent = find_silent_workers(Database(alias="default"), ttl=overrun.ttl)
        assert not silent
        other.rollback()
    wait_until(lambda: not overrun.supervisor_db.has_unwritten)

    assert not Job.objects.exists()
    assert DeadJob.objects.get().reason == "timeout"
    assert not WorkerHeartbeat.objects.exists()


def test_a_write_that_fails_is_tried_again(
    overrun: Overrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FAILED_PAUSE_SECONDS", 0.01)
    finish_attempts = module.finish_attempts
    failures: list[int] = []

    def fail_often(*args: Any, **options: Any) -> Any:
        if len(failures) < 20:
            failures.append(1)
            raise ValueError("no room on the disk")
        return finish_attempts(*args, **options)

    monkeypatch.setattr(module, "finish_attempts", fail_often)
    overrun.end()
    wait_until(DeadJob.objects.exists)
    assert DeadJob.objects.get().reason == "timeout"


def test_an_overrun_that_could_not_be_written_is_written_with_the_death(
    overrun: Overrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not released with what had not started."""
    finish_attempts = module.finish_attempts
    is_refused = True

    def refuse(db: Any, endings: Any, **options: Any) -> Any:
        if is_refused:
            report = FinishReport()
            report.busy += endings
            return report
        return finish_attempts(db, endings, **options)

    monkeypatch.setattr(module, "finish_attempts", refuse)
    overrun.end()
    overrun.record_death()
    # The death is tried first, as after a lock wait.
    overrun.supervisor_db._writes.reverse()
    is_refused = False
    wait_until(DeadJob.objects.exists)
    assert DeadJob.objects.get().reason == "timeout"


def test_a_receiver_that_hangs_in_the_supervisor_costs_no_log_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers_module, "HANGING_RECEIVER_SECONDS", 0.05)
    gate = threading.Event()

    def hang(**values: Any) -> None:
        gate.wait(10)

    job_died.connect(hang)
    db = Database(alias="default")
    supervisor_db = SupervisorDb(get_options(), on_suspects=lambda: None)
    child: Any = StubChild(places=5)
    supervisor_db.add(child)
    supervisor_db.receivers = receivers_module.Receivers(room=2)
    supervisor_db.start_reports()
    try:
        supervisor_db.step(db)
        for x in range(5):
            jobs.add.using(max_attempts=1).enqueue(x=x)
        now = time.monotonic()
        for claim in claim_jobs(db, {"default": 5}, worker_id=child.id):
            child.shared_memory.enter(claim, entered=now, limit=now + 60, most=1)
        for attempt in child.shared_memory.read_running():
            supervisor_db.end_attempt(child, attempt)
            supervisor_db.step(db)
        wait_until(lambda: caplog.text.count("job dead") == 5, timeout=5)
        # One is with the receiver, two wait.
        wait_until(lambda: supervisor_db.receivers.dropped == 2, timeout=5)
        assert not supervisor_db.finish_reports(0.05)
    finally:
        gate.set()
        job_died.disconnect(hang)
    wait_until(lambda: supervisor_db.finish_reports(0.1))
