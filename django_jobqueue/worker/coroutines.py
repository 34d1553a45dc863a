"""Coroutines: async handlers, on one event loop in a thread of its own.

Async ORM calls of one worker share one thread and one connection (Django has no other
way yet); its upkeep is done here, once a second while jobs come and after each failure.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable

from asgiref.sync import sync_to_async
from django.db import connections

from ..failures import describe_exception
from ..lifecycle.endings import Ending
from ..outcomes import Succeeded
from ..signals import Event
from .attempt import arun_attempt
from .bench import Bench
from .connections import close_idle_connections, tidy_connections
from .held import HeldJob

logger = logging.getLogger("django_jobqueue.worker")

UPKEEP = 1.0
LAST_MOMENT = 0.5


class Coroutines:
    """The event loop of a worker, started with its first async job."""

    def __init__(self, bench: Bench, *, on_end: Callable[[Ending], None]) -> None:
        self._bench = bench
        self._on_end = on_end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = asyncio.Event()
        self._ended = 0
        # Jobs on their way to the loop, and whether it was told of them.
        self._coming: deque[HeldJob] = deque()
        self._is_told = False
        # asyncio keeps only weak references to its tasks.
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, held: HeldJob) -> None:
        """Run one job on the loop; returns at once, from any thread.

        The loop is told once for all that come together: each word is a system call
        and wakes it.
        """
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._run, name="jobqueue-coroutines", daemon=True
            )
            self._thread.start()
        self._coming.append(held)
        if not self._is_told:
            self._is_told = True
            self._loop.call_soon_threadsafe(self._create_tasks)

    def stop(self, timeout: float) -> bool:
        """End the loop; tell whether it is over and nothing was left behind."""
        if self._loop is None or self._thread is None:
            return True
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout)
        return not self._thread.is_alive() and not self._tasks

    def _run(self) -> None:
        """Run the loop until the worker stops. The body of its thread.

        asyncio lets sys.exit() in any task end the loop, and handlers can stop it or
        cancel all of its tasks: then it runs again, for the jobs of the others.
        """
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        serving: asyncio.Task[None] | None = None
        while not self._loop.is_closed():
            if serving is None or serving.done():
                serving = self._loop.create_task(self._serve())
            try:
                self._loop.run_until_complete(serving)
                break
            except BaseException as error:
                reason = describe_exception(error).short
                logger.warning(Event("a job has stopped the event loop", error=reason))
        if not self._tasks:
            self._loop.close()

    async def _serve(self) -> None:
        """Live until the worker stops, then give what still runs a moment to end."""
        upkeep = asyncio.create_task(self._keep_up())
        try:
            await self._stopping.wait()
        finally:
            upkeep.cancel()
        left = {upkeep, *self._tasks}
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=LAST_MOMENT)
        if not self._tasks:
            await sync_to_async(connections.close_all)()

    def _create_tasks(self) -> None:
        # Before the look: whoever comes after it says so again.
        self._is_told = False
        while self._coming:
            self._create_task(self._coming.popleft())

    def _create_task(self, held: HeldJob) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._run_job(held))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with held.lock:
            held.task = task
            is_late = held.interruption is None and held.flags.cancelled
        if is_late:
            task.cancel()

    async def _run_job(self, held: HeldJob) -> None:
        ending = await arun_attempt(held, self._bench)
        with held.lock:
            held.task = None
        self._ended += 1
        self._on_end(ending)
        if not isinstance(ending.outcome, Succeeded):
            # The connection may be broken: before another job finds that out.
            await sync_to_async(tidy_connections)()

    async def _keep_up(self) -> None:
        """Tidy the connections of the thread that serves async ORM calls."""
        seen = 0
        while True:
            await asyncio.sleep(UPKEEP)
            is_idle = self._ended == seen and not self._tasks
            if self._ended != seen:
                await sync_to_async(tidy_connections)()
            elif is_idle:
                await sync_to_async(close_idle_connections)()
            seen = self._ended
