"""The thread pool: jobs run in as many threads as there are slots."""

from __future__ import annotations

import decimal
import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
from django.core.cache import caches
from django.utils import timezone, translation

from django_jobqueue.options import make_options
from django_jobqueue.outcomes import Succeeded
from django_jobqueue.storage.claims import Claim
from django_jobqueue.storage.endings import Ending
from django_jobqueue.worker.running import shortage as shortage_module
from django_jobqueue.worker.running import thread_pool as module
from django_jobqueue.worker.running.attempt_env import AttemptEnv
from django_jobqueue.worker.running.in_flight import InFlightJob
from django_jobqueue.worker.running.memory_place import MemoryPlace
from django_jobqueue.worker.running.thread_pool import NoThreads, ThreadPool
from django_jobqueue.worker.supervision.shared_memory import SharedMemory
from tests.waiting import wait_until

CONCURRENCY = 8

request_id: ContextVar[str] = ContextVar("request_id", default="none")


class Pool:
    """A thread pool whose jobs run `action`, and the ends of these jobs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.action: Callable[[], Any] = lambda: None
        self.endings: list[Ending] = []
        monkeypatch.setattr(module, "run_attempt", self._run)
        env = AttemptEnv(
            options=make_options({}),
            worker_id=uuid.uuid4(),
            report_progress=lambda claim, progress: None,
            report_started=lambda claim: None,
        )
        self.threads = ThreadPool(
            CONCURRENCY, env, on_end=self.endings.append, on_room=lambda: None
        )

    def add(self, count: int) -> None:
        self.threads.add([make_job_in_flight() for _ in range(count)])

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.endings) >= count)

    def _run(self, job: InFlightJob, env: AttemptEnv) -> Ending:
        self.action()
        return Ending(claim=job.claim, outcome=Succeeded())


def make_job_in_flight() -> InFlightJob:
    values: dict[str, Any] = dict.fromkeys(Claim._fields)
    values |= {"id": uuid.uuid4(), "lease_token": 1, "job_type": "testapp.nothing"}
    return InFlightJob(Claim(**values))


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    made = Pool(monkeypatch)
    yield made
    made.threads.close()


@pytest.mark.parametrize("is_awake", [False, True], ids=["new threads", "idle threads"])
def test_jobs_that_wait_for_each_other_all_run_at_the_same_time(
    pool: Pool, is_awake: bool
) -> None:
    barrier = threading.Barrier(CONCURRENCY, timeout=20)
    pool.action = barrier.wait
    rounds = 2 if is_awake else 1
    for number in range(1, rounds + 1):
        pool.add(CONCURRENCY)
        pool.wait_for(number * CONCURRENCY)
    assert not barrier.broken


def test_jobs_added_one_by_one_run_beside_the_running_ones(pool: Pool) -> None:
    barrier = threading.Barrier(CONCURRENCY, timeout=20)
    pool.action = barrier.wait
    for number in range(1, CONCURRENCY):
        pool.add(1)
        wait_until(lambda running=number: pool.threads.running == running)
    pool.add(1)
    pool.wait_for(CONCURRENCY)
    assert not barrier.broken


def test_no_more_jobs_run_at_the_same_time_than_there_are_slots(pool: Pool) -> None:
    highest = 0
    lock, pause = threading.Lock(), threading.Event()
    inside = 0

    def count() -> None:
        nonlocal inside, highest
        with lock:
            inside += 1
            highest = max(highest, inside)
        pause.wait(0.001)
        with lock:
            inside -= 1

    pool.action = count
    pool.add(200)
    pool.wait_for(200)
    assert highest <= CONCURRENCY


def test_take_waiting_returns_only_jobs_that_have_waited_long_enough(
    pool: Pool,
) -> None:
    old, young = make_job_in_flight(), make_job_in_flight()
    old.in_flight_since -= 10
    pool.threads.close()
    pool.threads.add([old, young])
    assert pool.threads.take_waiting(older_than=5) == [old]
    assert pool.threads.waiting == 1
    assert pool.threads.take_waiting() == [young]


class ThreadLimit:
    """Lets only `room` more threads start, as a system with a limit does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 0
        start = threading.Thread.start

        def start_if_possible(thread: threading.Thread) -> None:
            if thread.name.startswith(("jobqueue-job", "jobqueue-coroutines")):
                if self.room <= 0:
                    raise RuntimeError("can't start new thread")
                self.room -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_if_possible)
        monkeypatch.setattr(module, "RETRY_START_SECONDS", 0.01)


def test_jobs_run_in_the_threads_that_could_be_started(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shortage = ThreadLimit(monkeypatch)
    shortage.room = 1
    pool.add(200)
    pool.wait_for(200)
    assert caplog.text.count("a thread could not be started") <= 1
    # Once there is room, as many run at a time as there are slots.
    shortage.room = CONCURRENCY
    barrier = threading.Barrier(CONCURRENCY, timeout=20)
    pool.action = barrier.wait

    def have_all_ended() -> bool:
        pool.threads.add([])
        return len(pool.endings) >= 200 + CONCURRENCY

    pool.add(CONCURRENCY)
    wait_until(have_all_ended)


def test_without_any_thread_add_raises_and_the_jobs_can_be_given_back(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shortage = ThreadLimit(monkeypatch)
    for _ in range(3):
        with pytest.raises(NoThreads):
            pool.add(1)
    assert len(pool.threads.take_waiting()) == 3
    assert caplog.text.count("a thread could not be started") == 1
    assert pool.threads.running == 0
    shortage.room = CONCURRENCY
    wait_until(lambda: pool.threads._may_start(), pause=0.001)
    pool.add(5)
    pool.wait_for(5)


def test_without_a_thread_for_the_event_loop_async_jobs_are_given_back(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ThreadLimit(monkeypatch)
    values = {"job_type": "testapp.add_async"}
    job = make_job_in_flight()
    pool.threads.add([InFlightJob(job.claim._replace(**values))])
    [ending] = pool.endings
    assert ending.outcome == module.NO_LOOP
    assert (pool.threads.running, pool.threads.waiting) == (0, 0)


@pytest.mark.parametrize("job_type", ["testapp.add", "testapp.add_async"])
def test_shortage_counts_from_the_first_start_that_failed(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, job_type: str
) -> None:
    shortage = ThreadLimit(monkeypatch)
    claim = make_job_in_flight().claim._replace(job_type=job_type)

    def add() -> None:
        with suppress(NoThreads):
            pool.threads.add([InFlightJob(claim)])
        time.sleep(0.02)

    def read_since() -> float:
        parts = [part for part in pool.threads.list_parts() if part.name == "threads"]
        return min(part.stalled_since for part in parts)

    assert read_since() == math.inf
    began = time.monotonic()
    for _ in range(3):
        add()
        assert began <= read_since() < began + 0.02
    # No start was needed lately.
    monkeypatch.setattr(shortage_module, "SHORTAGE_OVER_SECONDS", 0.01)
    assert read_since() == math.inf
    add()
    monkeypatch.setattr(shortage_module, "SHORTAGE_OVER_SECONDS", 10.0)
    assert read_since() > began + 0.02
    if job_type == "testapp.add":
        shortage.room = CONCURRENCY
        add()
        assert read_since() == math.inf


def test_context_of_an_attempt_is_not_seen_by_the_next(pool: Pool) -> None:
    seen: list[tuple[Any, ...]] = []

    def change_context() -> None:
        with lock:
            seen.append(
                (
                    request_id.get(),
                    translation.get_language(),
                    timezone.get_current_timezone_name(),
                    decimal.getcontext().prec,
                    caches["default"],
                )
            )
        request_id.set("of a job")
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        decimal.getcontext().prec = 3

    lock = threading.Lock()
    pool.action = change_context
    pool.threads.concurrency = 1
    pool.add(20)
    pool.wait_for(20)
    first = seen[0]
    assert first[0] == "none"
    assert set(seen) == {first}, "a job sees what another has set"


def test_error_while_idle_connections_are_closed_does_not_end_the_thread(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = threading.Semaphore(0)

    def fail() -> None:
        closed.release()
        raise RuntimeError("close")

    monkeypatch.setattr(module, "IDLE_CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(module, "close_idle_connections", fail)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    pool.threads.concurrency = 1
    for number in range(1, 4):
        pool.add(1)
        pool.wait_for(number)
        assert closed.acquire(timeout=20)
    assert pool.threads._threads <= 1


def test_connection_that_hangs_while_it_is_closed_does_not_delay_jobs(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, begun = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        may_go_on.wait(30)

    monkeypatch.setattr(module, "IDLE_CLOSE_SECONDS", 0.01)
    monkeypatch.setattr(module, "close_idle_connections", hang)
    pool.threads.concurrency = 1
    pool.add(1)
    assert begun.wait(20)
    pool.add(5)
    pool.wait_for(6)
    may_go_on.set()


def test_error_of_the_thread_itself_ends_the_job_and_frees_its_slot(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    pool.threads.concurrency = 1

    def die() -> None:
        pool.action = lambda: None
        raise MemoryError

    pool.action = die
    pool.add(3)
    pool.wait_for(3)
    outcomes = [ending.outcome for ending in pool.endings]
    assert outcomes == [module.THREAD_DIED, Succeeded(), Succeeded()]
    wait_until(lambda: pool.threads.running == 0)


class Hanging:
    """Code that runs until the test lets it go on."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.begun.set()
        self.may_go_on.wait(30)


class Freed:
    """Hangs in its destructor."""

    def __init__(self, hanging: Hanging) -> None:
        self.hanging = hanging

    def __del__(self) -> None:
        self.hanging.wait()


def test_job_keeps_its_place_until_its_context_variables_are_freed(pool: Pool) -> None:
    shared_memory, hanging = SharedMemory(1), Hanging()
    var: ContextVar[Freed] = ContextVar("var")
    pool.action = lambda: var.set(Freed(hanging))
    pool.threads.concurrency = 1
    first, second = make_job_in_flight(), make_job_in_flight()
    for job in (first, second):
        job.claim = job.claim._replace(attempt=1)
        job.place = MemoryPlace(job.claim, shared_memory, grace=0.0)
    first.reserve(most=1)
    pool.threads.add([first, second])
    assert hanging.begun.wait(20)
    # Its end was handed over nevertheless.
    assert [ending.claim for ending in pool.endings] == [first.claim]
    assert [each.id for each in shared_memory.read_places()] == [first.claim.id]
    assert pool.threads.running == 1
    pool.action = lambda: None
    hanging.may_go_on.set()
    pool.wait_for(2)
    wait_until(lambda: pool.threads.running == 0)
    assert not list(shared_memory.read_places())
    shared_memory.close_file()
