"""Interrupts: an exception is never raised where a lock of the worker may be held."""

from __future__ import annotations

import io
import logging
import queue
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from django_jobqueue.exceptions import JobTimeout
from django_jobqueue.options import make_options
from django_jobqueue.storage.claims import Claim
from django_jobqueue.worker.running import deadlines as deadlines_module
from django_jobqueue.worker.running.deadlines import Deadlines
from django_jobqueue.worker.running.in_flight import InFlightJob, InFlightJobs
from django_jobqueue.worker.running.interrupts import Kind, find_kind
from django_jobqueue.worker.running.policy import expected_retry_delay
from django_jobqueue.worker.startup.logs import _name_records
from tests.waiting import wait_until

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_claim(**values: Any) -> Claim:
    given: dict[str, Any] = dict.fromkeys(Claim._fields)
    given |= {"id": uuid.uuid4(), "lease_token": 1, "attempt": 1, "job_type": "a.b"}
    return Claim(**given | {"run_at": NOW, "claimed_at": NOW} | values)


class Attempts:
    """Attempts in threads, and the thread that checks their deadlines."""

    def __init__(self) -> None:
        self.in_flight = InFlightJobs()
        self.deadlines = Deadlines(self.in_flight, find_delay=lambda in_flight: None)
        self.outcomes: Counter[str] = Counter()
        self.is_over = threading.Event()

    def run(self, handle: Callable[[], None], *, timeout: float = 0.001) -> str:
        """Run one attempt in this thread; return the name of what it raised."""
        [job] = self.in_flight.add([make_claim()])
        outcome = "none"
        job.enter(timeout=timeout)
        try:
            try:
                handle()
            finally:
                job.leave()
        except BaseException as error:
            job.leave()
            outcome = type(error).__name__
        self.in_flight.remove([job.claim])
        self.outcomes[outcome] += 1
        return outcome

    def start(self, *bodies: Callable[[], Any]) -> list[threading.Thread]:
        threads = [threading.Thread(target=body, daemon=True) for body in bodies]
        for thread in threads:
            thread.start()
        return threads


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempts]:
    monkeypatch.setattr(deadlines_module, "MAX_CHECK_SECONDS", 0.002)
    made = Attempts()
    made.deadlines.start()
    interval = sys.getswitchinterval()
    # Switch threads often, to interrupt them in many places.
    sys.setswitchinterval(0.0002)
    yield made
    sys.setswitchinterval(interval)
    made.is_over.set()
    made.deadlines.stop()


def join_all(threads: list[threading.Thread], *, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "threads hang"


@contextmanager
def log_to(
    handler: logging.Handler, *, is_named: bool = False
) -> Iterator[logging.Logger]:
    """Log to a handler; `is_named`: with the records of a worker."""
    # Not from getLogger(): pytest would keep millions of records.
    logger = logging.Logger("tests.interrupts")
    logger.addHandler(handler)
    factory = logging.getLogRecordFactory()
    if is_named:
        _name_records(None)
    yield logger
    logging.setLogRecordFactory(factory)


class SlowHandler(logging.StreamHandler[Any]):
    """A log handler that holds its lock for a long time."""

    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(0.0001)
        super().emit(record)


class SlowFilter(logging.Filter):
    """Runs Python code while the lock of its handler is held."""

    def filter(self, record: logging.LogRecord) -> bool:
        return sum(range(20)) > 0


@pytest.mark.once
@pytest.mark.parametrize(
    ("handler_class", "is_named", "count"),
    [
        (logging.StreamHandler, False, 6_000),
        (logging.StreamHandler, True, 2_000),
        (SlowHandler, True, 2_000),
    ],
)
def test_ten_thousand_interrupts_of_handlers_that_log_leave_no_lock_locked(
    attempts: Attempts,
    handler_class: type[logging.StreamHandler[Any]],
    is_named: bool,
    count: int,
) -> None:
    handler = handler_class(io.StringIO())
    handler.addFilter(SlowFilter())
    with log_to(handler, is_named=is_named) as logger:
        threads = 8

        def log_forever() -> None:
            while True:
                logger.info("from a handler")
                if not is_named:
                    # Only here it can be interrupted. With the records of a worker
                    # each log call raises a pending interruption.
                    time.sleep(0.0002)

        def run_and_interrupt() -> None:
            for _ in range(count // threads):
                attempts.run(log_forever)

        def log_beside() -> None:
            while not attempts.is_over.wait(0.001):
                logger.info("from the worker")

        others = attempts.start(log_beside, log_beside)
        join_all(attempts.start(*[run_and_interrupt] * threads), timeout=60)
        attempts.is_over.set()
        join_all(others, timeout=10)
        assert handler.lock is not None
        assert handler.lock.acquire(timeout=1)
        handler.lock.release()
    assert attempts.outcomes == {"JobTimeout": count}


@pytest.mark.parametrize("module", ["threading", "user"])
def test_a_wait_for_a_queue_or_event_of_the_handler_is_interrupted(
    attempts: Attempts, module: str
) -> None:
    own: queue.Queue[int] = queue.Queue()
    event = threading.Event()

    def wait_forever() -> None:
        while True:
            if module == "threading":
                event.wait(0.001)
            else:
                try:
                    own.get(timeout=0.001)
                except queue.Empty:
                    continue

    for _ in range(20):
        assert attempts.run(wait_forever) == "JobTimeout"


@pytest.mark.parametrize("lock", [threading.Lock, threading.RLock])
@pytest.mark.parametrize("place", ["enter", "reacquire"])
def test_a_handler_that_waits_for_the_lock_of_a_condition_does_not_leak_it(
    attempts: Attempts, lock: Callable[[], Any], place: str
) -> None:
    condition = threading.Condition(lock())

    def work() -> None:
        with condition:
            if place == "reacquire":
                condition.wait(0.05)
        while True:
            time.sleep(0.001)

    if place == "enter":
        condition.acquire()
        [thread] = attempts.start(lambda: attempts.run(work, timeout=0.01))
        time.sleep(0.1)
    else:
        [thread] = attempts.start(lambda: attempts.run(work, timeout=0.15))
        wait_until(lambda: bool(condition._waiters), pause=0.001)
        condition.acquire()
        time.sleep(0.3)
    condition.release()
    join_all([thread], timeout=10)

    assert attempts.outcomes == {"JobTimeout": 1}
    assert condition.acquire(timeout=1)
    assert not condition._waiters


@pytest.mark.parametrize("lock", [threading.Lock, threading.RLock])
def test_interrupts_leak_no_condition_and_no_semaphore(
    attempts: Attempts, lock: Callable[[], Any]
) -> None:
    condition = threading.Condition(lock())
    semaphore = threading.Semaphore(2)
    inbox: queue.Queue[int] = queue.Queue()
    errors: list[BaseException] = []

    def work() -> None:
        deadline = time.monotonic() + 5.0
        try:
            while time.monotonic() < deadline:
                with condition:
                    condition.wait(0.00001)
                    condition.notify()
                with semaphore:
                    inbox.put(1)
                    inbox.get()
        except RuntimeError as error:
            errors.append(error)
            raise

    def work_often() -> None:
        for _ in range(100):
            attempts.run(work, timeout=0.0005)

    join_all(attempts.start(*[work_often] * 4), timeout=30)

    assert attempts.outcomes["JobTimeout"] > 350
    assert errors == []
    assert condition.acquire(timeout=1)
    assert inbox.mutex.acquire(timeout=1)
    assert semaphore._value == 2
    assert not condition._waiters


def test_an_import_is_not_interrupted(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"slow_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(
        "import time\n"
        "end = time.monotonic() + 0.1\n"
        "while time.monotonic() < end:\n"
        "    time.sleep(0.001)\n"
        "is_complete = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def import_and_spin() -> None:
        import_module(name)
        while True:
            time.sleep(0.001)

    assert attempts.run(import_and_spin) == "JobTimeout"
    assert sys.modules[name].is_complete


def test_an_interruption_before_the_handler_is_called_is_deferred(
    attempts: Attempts,
) -> None:
    """The moment after enter() has released its lock."""
    [job] = InFlightJobs().add([make_claim()])
    where: list[str] = []

    def run() -> None:
        job.enter(timeout=60)
        assert job.interrupt(JobTimeout) is True
        # Still in the code that enters: nothing may be raised here.
        for _ in range(100):
            job.deliver()
        where.append("entered")
        try:
            spin()
        except JobTimeout:
            where.append("handler")
        finally:
            job.leave()

    def spin() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            pass

    [thread] = attempts.start(run)
    wait_until(lambda: where and job.deliver(), pause=0.001)
    join_all([thread], timeout=30)
    assert where == ["entered", "handler"]


def test_modules_are_sorted_by_the_locks_they_may_hold() -> None:
    for module in ("logging.handlers", "psycopg_pool.pool", "importlib._bootstrap"):
        assert find_kind(module) is Kind.SEALED
    for module in ("django.db.backends.utils", "django_jobqueue.storage.wait"):
        assert find_kind(module) is Kind.SHARED
    for module in ("queue", "threading", "psycopg.connection"):
        assert find_kind(module) is Kind.BORROWED
    for module in ("shop.jobs", "django.core.management.base", "loggingx"):
        assert find_kind(module) is Kind.OWN
    assert find_kind("django_jobqueue.worker.running.call") is Kind.OWN
    assert find_kind("django_jobqueue.worker.running") is Kind.SEALED


def add_overdue(in_flight: InFlightJobs, count: int) -> list[InFlightJob]:
    jobs = in_flight.add([make_claim() for _ in range(count)])
    for job in jobs:
        job.deadline = time.monotonic() - 1
    return jobs


def test_a_job_whose_retry_delay_fails_does_not_stop_the_deadlines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    in_flight = InFlightJobs()
    bad, good = add_overdue(in_flight, 2)
    asked: list[InFlightJob] = []

    def find_delay(job: InFlightJob) -> float:
        asked.append(job)
        if job is bad:
            sys.exit("malformed")
        return 7.0

    deadlines = Deadlines(in_flight, find_delay=find_delay)
    deadlines.check()
    deadlines._next_check = 0.0
    deadlines.check()
    assert asked == [bad, good]
    assert (bad.retry_delay, good.retry_delay) == (None, 7.0)
    assert (bad.deadline, good.deadline) == (None, None)
    wait_until(lambda: "could not be prepared" in caplog.text)
    assert caplog.text.count("could not be prepared") == 1


@pytest.mark.parametrize("backoff", ["", "nonsense", "{}", '{"x": 1}', "7", "[null]"])
def test_a_malformed_backoff_in_the_row_does_not_stop_the_deadlines(
    backoff: str,
) -> None:
    in_flight = InFlightJobs()
    claim = make_claim(job_type="testapp.nothing", backoff=backoff)
    [bad], [good] = in_flight.add([claim]), add_overdue(in_flight, 1)
    bad.deadline = time.monotonic() - 1
    options = make_options({})
    Deadlines(
        in_flight, find_delay=lambda job: expected_retry_delay(job, options)
    ).check()
    assert (bad.deadline, good.deadline) == (None, None)


def test_a_job_that_cannot_be_interrupted_does_not_stop_the_deadlines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_flight = InFlightJobs()
    bad, good = add_overdue(in_flight, 2)
    overrun = InFlightJob.overrun

    def fail_for_one(self: InFlightJob, *, retry_delay: float | None) -> None:
        if self is bad:
            raise OSError("no shared memory")
        overrun(self, retry_delay=retry_delay)

    monkeypatch.setattr(InFlightJob, "overrun", fail_for_one)
    monkeypatch.setattr(
        deadlines_module, "_report_aside", lambda in_flight, error: None
    )
    Deadlines(in_flight, find_delay=lambda in_flight: 1.0).check()
    assert (bad.deadline, good.deadline) == (None, None)
    assert good.retry_delay == 1.0


def test_a_cancel_that_hangs_in_the_database_does_not_stop_the_deadlines(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, asked = threading.Event(), threading.Event()

    def hang(wrappers: list[Any]) -> list[Exception]:
        asked.set()
        release.wait(30)
        return []

    module = "django_jobqueue.worker.running.in_flight"
    monkeypatch.setattr(f"{module}.cancel_queries", hang)
    monkeypatch.setattr(f"{module}.has_running_query", lambda wrappers: True)

    def in_logging() -> None:
        # Not interruptible: so its SQL, if it had any, is cancelled.
        with log_to(Blocked()) as logger:
            logger.info("text")

    class Blocked(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            release.wait(30)

    def spin() -> None:
        while True:
            time.sleep(0.001)

    [stuck] = attempts.start(lambda: attempts.run(in_logging))
    assert asked.wait(30)
    # Its cancel hangs. Later jobs are interrupted nevertheless.
    for _ in range(5):
        assert attempts.run(spin) == "JobTimeout"
    release.set()
    join_all([stuck], timeout=30)
