"""Threads behind async code that a job has left blocked are replaced and noticed."""

from __future__ import annotations

import asyncio
import math
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import SyncToAsync
from django.core.management import call_command

from django_jobqueue.models import Job
from django_jobqueue.worker.running import executors as module
from django_jobqueue.worker.running.attempt import current_claim
from django_jobqueue.worker.running.executors import (
    ExecutorProbe,
    JobExecutor,
)
from tests.testapp import jobs
from tests.waiting import wait_until


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        monkeypatch.setattr(SyncToAsync, "single_thread_executor", executor)
        yield executor


@pytest.mark.parametrize("which", ["sync_to_async", "to_thread"])
def test_blocked_executor_is_seen_from_the_first_probe_that_waits(
    which: str, loop: asyncio.AbstractEventLoop, shared: ThreadPoolExecutor
) -> None:
    probe, may_go_on = ExecutorProbe(), threading.Event()
    with ThreadPoolExecutor(2) as others:
        loop.set_default_executor(others)
        probe.probe(loop, 1.0)
        wait_until(lambda: probe.stalled_since == math.inf, pause=0.001)
        for _ in range(2):
            (shared if which == "sync_to_async" else others).submit(may_go_on.wait, 30)
        probe.probe(loop, 2.0)
        probe.probe(loop, 3.0)
        wait_until(lambda: probe.stalled_since == 2.0, pause=0.001)
        may_go_on.set()
        wait_until(lambda: probe.stalled_since == math.inf, pause=0.001)


def test_executor_that_refuses_work_is_seen(loop: asyncio.AbstractEventLoop) -> None:
    probe = ExecutorProbe()
    with ThreadPoolExecutor(1) as others:
        loop.set_default_executor(others)
        others.shutdown()
        probe.probe(loop, 1.0)
        probe.probe(loop, 2.0)
        assert probe.stalled_since == 1.0


class Owner:
    """A job by name, whose calls block until it is told to end them."""

    def __init__(self) -> None:
        self.id = uuid.uuid4()
        self.may_end = threading.Event()
        self.threads: list[int] = []

    def block(self, executor: JobExecutor) -> Future[None]:
        context = copy_context()
        context.run(current_claim.set, self)  # type: ignore[arg-type]
        future = context.run(executor.submit, self._wait)
        wait_until(lambda: len(self.threads) > 0, pause=0.001)
        return future

    def call(self, executor: JobExecutor, function: Any) -> Future[Any]:
        context = copy_context()
        context.run(current_claim.set, self)  # type: ignore[arg-type]
        return context.run(executor.submit, function)

    def _wait(self) -> None:
        self.threads.append(threading.get_ident())
        self.may_end.wait(30)


@pytest.fixture
def executor() -> Iterator[JobExecutor]:
    made = JobExecutor(1, name="test")
    yield made
    made.shutdown()


@pytest.mark.django_db
def test_calls_of_others_do_not_wait_for_a_job_that_has_ended(
    executor: JobExecutor,
) -> None:
    ended, other = Owner(), Owner()
    stuck = ended.block(executor)
    waiting = other.call(executor, threading.get_ident)
    assert executor.leave_behind(other.id) == 0
    assert executor.leave_behind(ended.id) == 1
    thread = waiting.result(30)
    # Still one thread for all of them, but not the old one.
    assert thread not in ended.threads
    assert other.call(executor, threading.get_ident).result(30) == thread
    ended.may_end.set()
    assert stuck.result(30) is None
    wait_until(lambda: not is_alive(ended.threads[0]), pause=0.001)


@pytest.mark.django_db
def test_calls_that_run_for_others_go_on(executor: JobExecutor) -> None:
    """Of a job that ends beside them, in threads of the same executor."""
    pool = JobExecutor(2, name="pool")
    ended, other = Owner(), Owner()
    ended.block(pool)
    running = other.block(pool)
    pool.leave_behind(ended.id)
    other.may_end.set()
    assert running.result(30) is None
    ended.may_end.set()
    pool.shutdown()


@pytest.mark.django_db
def test_many_threads_left_behind_are_seen_until_they_come_back(
    executor: JobExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_LEFT_THREADS", 2)
    monkeypatch.setattr(module, "MAX_REPLACED_THREADS", 3)
    jobs = [Owner() for _ in range(4)]
    for count, job in enumerate(jobs):
        job.block(executor)
        assert (executor.crowded_since < math.inf) is (count >= 2)
        # The last one stays where it is: the probe sees that.
        assert executor.leave_behind(job.id) == int(count < 3)
    for job in jobs:
        job.may_end.set()
    wait_until(lambda: executor.crowded_since == math.inf, pause=0.001)


def is_alive(ident: int) -> bool:
    return any(thread.ident == ident for thread in threading.enumerate())


@pytest.mark.django_db(transaction=True)
def test_async_jobs_run_beside_calls_that_a_timed_out_job_has_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    until = tmp_path / "until"
    jobs.leave_calls_in_threads.enqueue(until=str(until), calls=40)
    for number in range(3):
        jobs.call_in_threads.enqueue(name=str(number))
    try:
        call_command("runworker", burst=True, verbosity=0)
    finally:
        until.touch()
    assert Job.objects.filter(status="succeeded").count() == 3
    assert "has left calls behind in threads" in caplog.text
