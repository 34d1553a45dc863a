"""EventLoop: runs async handlers on one event loop, in its own thread.

Each job ends exactly once, in the callback of its task: a task may be cancelled before
its first step, and then none of its code runs. Each task has its own context. Async ORM
calls of one worker share one thread and one connection (Django has no other way yet).
That connection is reset here, once a second while jobs run and after each failure.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial

from asgiref.sync import sync_to_async
from django.db import connections

from ...failures import describe_exception
from ...log_events import Event
from ...outcomes import Succeeded
from ...states import AttemptOutcome
from ...storage.endings import Ending
from .attempt import arun_attempt, end_unstarted, give_up
from .attempt_env import AttemptEnv
from .executors import JobExecutors
from .forked import end_copy
from .in_flight import InFlightJob
from .job_connections import close_idle_connections, reset_connections

logger = logging.getLogger("django_jobqueue.worker")

UPKEEP_SECONDS = 1.0
# How long the remaining tasks may take to end when the worker stops.
LAST_TASKS_SECONDS = 0.5
FORKED = RuntimeError("a copy of this process cannot go on with its event loop")


class EventLoop:
    """The event loop of a worker, started with its first async job."""

    # For Health, which watches it like a Loop.
    name = "event"
    is_curable = True

    def __init__(self, env: AttemptEnv, *, on_end: Callable[[Ending], None]) -> None:
        self._env = env
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = asyncio.Event()
        self._ended = 0
        # Monotonic: when the loop last ran a callback.
        self._ticked = math.inf
        self.executors = JobExecutors()
        # A job was timed out or cancelled: it may have left a thread blocked.
        self._was_interrupted = False
        # Jobs on their way to the loop, and whether the loop was woken for them.
        self._coming: deque[InFlightJob] = deque()
        self._is_woken = False
        # asyncio keeps only weak references to its tasks.
        self._tasks: set[asyncio.Task[None]] = set()
        self._tidying: asyncio.Task[None] | None = None

    def start(self, job: InFlightJob) -> None:
        """Run one job on the loop; returns at once, from any thread.

        The loop is woken once for all jobs that come together: each wake-up is a
        system call.
        """
        if self._loop is None:
            self._start_loop()
        assert self._loop is not None
        self._coming.append(job)
        if not self._is_woken:
            self._is_woken = True
            # Not in the caller's context: that may be the context of a job.
            try:
                self._loop.call_soon_threadsafe(self._create_tasks, context=Context())
            except RuntimeError:
                # A job has closed the loop. The caller gives this job back.
                self._is_woken = False
                self._coming.pop()
                raise

    @property
    def stalled_since(self) -> float:
        """The (monotonic) moment of the loop's last tick while jobs are on it or wait
        for it; inf while there are none."""
        return self._ticked if self._coming or self._tasks else math.inf

    def take_back(self, *, held_until: float) -> list[InFlightJob]:
        """Take out jobs that the loop has not taken yet and that were claimed at this
        (monotonic) moment or before: the loop may be blocked."""
        taken: list[InFlightJob] = []
        # The loop may take the last one at the same time.
        with suppress(IndexError):
            while self._coming[0].in_flight_since <= held_until:
                taken.append(self._coming.popleft())
        return taken

    def _start_loop(self) -> None:
        """Raises OSError or RuntimeError if the system has no resources for it."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(
            target=self._run, args=(loop,), name="jobqueue-coroutines", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            loop.close()
            raise
        self._loop, self._thread = loop, thread
        self._ticked = time.monotonic()
        note_fork = weakref.WeakMethod(self._note_fork)
        os.register_at_fork(
            after_in_child=lambda: (note := note_fork()) is not None and note()
        )

    def _note_fork(self) -> None:
        """In a process forked by a handler on the loop: end it at the next `await`,
        before the loop runs any other job."""
        if self._thread is None or self._thread.ident != threading.get_ident():
            return
        assert self._loop is not None
        # Not public, and uvloop has none: then steps that are due run before the end.
        if (due := getattr(self._loop, "_ready", None)) is not None:
            due.clear()
        self._loop.call_soon(end_copy, FORKED, context=Context())

    def stop(self, timeout: float) -> bool:
        """End the loop; return whether it has ended and no task was left behind."""
        if self._loop is None or self._thread is None:
            return True
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout)
        return not self._thread.is_alive() and not self._tasks

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until the worker stops. The body of its thread.

        asyncio lets sys.exit() in any task end the loop, and handlers can stop it or
        cancel all of its tasks: then it runs again, for the other jobs.
        """
        asyncio.set_event_loop(loop)
        self.executors.install(loop)
        loop.call_soon(self._tick, loop)
        serving: asyncio.Task[None] | None = None
        while not loop.is_closed():
            if serving is None or serving.done():
                serving = loop.create_task(self._serve())
            try:
                loop.run_until_complete(serving)
                break
            except BaseException as error:
                reason = describe_exception(error).short
                logger.warning(Event("a job has stopped the event loop", error=reason))
        self.executors.remove(loop)
        if not self._tasks:
            loop.close()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        """Note that the loop runs. A callback: handlers can cancel every task."""
        self._ticked = time.monotonic()
        loop.call_later(UPKEEP_SECONDS, self._tick, loop)
        if self._was_interrupted:
            self.executors.probe(loop, self._ticked)

    async def _serve(self) -> None:
        """Wait until the worker stops, then cancel what still runs and wait briefly."""
        upkeep = asyncio.create_task(self._keep_up())
        try:
            await self._stopping.wait()
        finally:
            upkeep.cancel()
        left = {upkeep, *self._tasks}
        if self._tidying is not None:
            left.add(self._tidying)
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=LAST_TASKS_SECONDS)
        if not self._tasks:
            await sync_to_async(connections.close_all)()

    def _create_tasks(self) -> None:
        # Reset first: jobs that come later wake the loop again.
        self._is_woken = False
        while self._coming:
            try:
                job = self._coming.popleft()
            except IndexError:
                # take_back() took it at this moment.
                return
            self._create_task(job)

    def _create_task(self, job: InFlightJob) -> None:
        assert self._loop is not None
        # The attempt's ending. Not the task's result: a task cancelled in its last step
        # has none, although its coroutine has returned.
        endings: list[Ending] = []
        task = self._loop.create_task(self._run_job(job, endings), context=Context())
        self._tasks.add(task)
        task.add_done_callback(partial(self._end, job, endings))
        with job.lock:
            job.task = task
            is_late = job.interruption is None and job.flags.cancelled
        if is_late:
            task.cancel()

    async def _run_job(self, job: InFlightJob, endings: list[Ending]) -> None:
        endings.append(await arun_attempt(job, self._env))

    def _end(
        self, job: InFlightJob, endings: list[Ending], task: asyncio.Task[None]
    ) -> None:
        """Hand over the ending of a job whose task is done, for whatever reason."""
        self._tasks.discard(task)
        with job.lock:
            job.task = None
        if endings:
            ending = endings[0]
        elif task.cancelled():
            ending = end_unstarted(job)
        else:
            error = task.exception() or RuntimeError("the task has no ending")
            ending = give_up(job, error, self._env)
        self._ended += 1
        self._leave_threads(job)
        job.free()
        self._on_end(ending)
        if not isinstance(ending.outcome, Succeeded):
            if ending.label in (AttemptOutcome.TIMEOUT, AttemptOutcome.CANCELLED):
                self._was_interrupted = True
            # The connection may be broken: reset it before another job uses it.
            self._start_tidying()

    def _leave_threads(self, job: InFlightJob) -> None:
        """Replace the threads that calls of an ended job still block."""
        if left := self.executors.leave_behind(job.claim.id):
            claim = job.claim
            logger.warning(
                Event(
                    "an async job has left calls behind in threads",
                    job_id=claim.id,
                    job_type=claim.job_type,
                    attempt=claim.attempt,
                    threads=left,
                )
            )

    def _start_tidying(self) -> None:
        if self._tidying is None or self._tidying.done():
            assert self._loop is not None
            self._tidying = self._loop.create_task(self._tidy(), context=Context())

    async def _tidy(self) -> None:
        try:
            await sync_to_async(reset_connections)()
        except Exception as error:
            reason = describe_exception(error).short
            logger.warning(Event("connections could not be tidied", error=reason))

    async def _keep_up(self) -> None:
        """Tidy the connections of the thread that serves async ORM calls."""
        seen = 0
        while True:
            await asyncio.sleep(UPKEEP_SECONDS)
            is_idle = self._ended == seen and not self._tasks
            if self._ended != seen:
                await self._tidy()
            elif is_idle:
                await sync_to_async(close_idle_connections)()
            seen = self._ended
