"""The threads behind async code: of sync_to_async() and of asyncio.to_thread().

Async ORM calls share one thread, asyncio.to_thread() a few. A call that outlives its
job must not block the others: JobExecutor abandons its thread and continues with new
ones. ExecutorProbe detects any other blockage. Made by the event loop.
"""

from __future__ import annotations

import asyncio
import math
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import UUID

from asgiref.sync import AsyncToSync, SyncToAsync
from django.db import connections

from .attempt import current_claim

# Threads left behind by ended jobs: from this number on the process is to be replaced,
# and from the second number on no more are left behind.
MAX_LEFT_THREADS = 10
MAX_REPLACED_THREADS = 100


class JobExecutor(ThreadPoolExecutor):
    """Runs calls of async jobs, in new threads once an ended job blocks the old ones.

    Subclasses ThreadPoolExecutor only because asyncio requires it.
    """

    def __init__(self, threads: int, *, name: str) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._threads_wanted = threads
        self._name = name
        self._inner = self._make_inner()
        self._inner_lock = threading.Lock()
        # Thread → the job whose call it runs; those whose job has ended.
        self._jobs: dict[int, UUID] = {}
        self._left: dict[int, float] = {}

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        claim = current_claim.get()
        with self._inner_lock:
            if claim is None:
                return self._inner.submit(fn, *args, **kwargs)
            return self._inner.submit(self._call, claim.id, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._inner_lock:
            inner = self._inner
        inner.shutdown(wait, cancel_futures=cancel_futures)

    def leave_behind(self, job_id: UUID) -> int:
        """Give up the threads in which calls of an ended job still run; return how
        many there are. What waited for them runs in new threads."""
        # Copied in one step: their threads change it.
        stuck = [
            thread
            for thread, owner in self._jobs.copy().items()
            if owner == job_id and thread not in self._left
        ]
        if not stuck or len(self._left) >= MAX_REPLACED_THREADS:
            return 0
        now = time.monotonic()
        with self._inner_lock:
            old, self._inner = self._inner, self._make_inner()
            _move_calls(old, self._inner, threads=self._threads_wanted)
        for thread in stuck:
            self._left[thread] = now
            if thread not in self._jobs:
                # Its call has returned in the meantime.
                self._left.pop(thread, None)
        # Its threads end once their calls return, and close their connections.
        for _ in range(self._threads_wanted):
            old.submit(connections.close_all)
        old.shutdown(wait=False)
        return len(stuck)

    @property
    def crowded_since(self) -> float:
        """The (monotonic) moment since when too many threads are left behind."""
        left = sorted(self._left.copy().values())
        return left[MAX_LEFT_THREADS - 1] if len(left) >= MAX_LEFT_THREADS else math.inf

    def _make_inner(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads_wanted, thread_name_prefix=self._name)

    def _call(
        self,
        job_id: UUID,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        thread = threading.get_ident()
        self._jobs[thread] = job_id
        try:
            return fn(*args, **kwargs)
        finally:
            self._jobs.pop(thread, None)
            self._left.pop(thread, None)


def _move_calls(
    old: ThreadPoolExecutor, new: ThreadPoolExecutor, *, threads: int
) -> None:
    """Move the calls that wait in one executor to another."""
    # Not public: without it they run when the old threads come back.
    waiting, target = (getattr(each, "_work_queue", None) for each in (old, new))
    if waiting is None or target is None:
        return
    count = 0
    with suppress(queue.Empty):
        while True:
            target.put(waiting.get_nowait())
            count += 1
    for _ in range(min(count, threads)):
        # Starts a thread, which takes the first that waits.
        new.submit(_do_nothing)


class JobExecutors:
    """Both executors of one event loop. Watched by Health."""

    name = "executor"
    is_curable = True

    def __init__(self) -> None:
        # As many as asyncio makes by default.
        self._pool = JobExecutor(
            min(32, (os.cpu_count() or 1) + 4), name="jobqueue-to_thread"
        )
        # One thread: Django's connections belong to a thread.
        self._single = JobExecutor(1, name="jobqueue-async")
        self._probe = ExecutorProbe()

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make this loop use them."""
        loop.set_default_executor(self._pool)
        # asgiref looks here for the executor of a loop before it uses its own.
        executors: dict[Any, Any] = AsyncToSync.loop_thread_executors
        executors[loop] = self._single

    def remove(self, loop: asyncio.AbstractEventLoop) -> None:
        AsyncToSync.loop_thread_executors.pop(loop, None)
        self._single.shutdown(wait=False)

    def leave_behind(self, job_id: UUID) -> int:
        """Give up the threads in which calls of an ended job still run."""
        return self._single.leave_behind(job_id) + self._pool.leave_behind(job_id)

    def probe(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        self._probe.probe(loop, now)

    @property
    def stalled_since(self) -> float:
        """The (monotonic) moment since when one takes no work, or too many threads
        are left behind; inf: all is well."""
        return min(
            self._probe.stalled_since,
            self._pool.crowded_since,
            self._single.crowded_since,
        )


class ExecutorProbe:
    """Submits a call that does nothing, and notes since when it has not run."""

    def __init__(self) -> None:
        # Name → (monotonic moment, future); no future: the executor refuses work.
        self._probes: dict[str, tuple[float, Future[None] | None]] = {}

    @property
    def stalled_since(self) -> float:
        """The (monotonic) moment of the oldest call that has not run; inf: all have."""
        waiting = [
            since
            for since, future in list(self._probes.values())
            if future is None or not future.done()
        ]
        return min(waiting, default=math.inf)

    def probe(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Probe both executors anew, unless a probe still waits."""
        executors: dict[Any, Any] = AsyncToSync.loop_thread_executors
        single = executors.get(loop, SyncToAsync.single_thread_executor)
        self._probe_one("sync_to_async", single, now)
        # None until a job has used it.
        executor = getattr(loop, "_default_executor", None)
        if executor is not None:
            self._probe_one("to_thread", executor, now)

    def _probe_one(self, name: str, executor: Executor, now: float) -> None:
        since, future = self._probes.get(name, (now, None))
        if future is not None:
            if not future.done():
                return
            since = now
        try:
            self._probes[name] = (since, executor.submit(_do_nothing))
        except RuntimeError:
            # It was shut down, or no thread can be started.
            self._probes[name] = (since, None)


def _do_nothing() -> None:
    return None
