"""The interface of an adapter: the operations that every system is measured by.

agent.py creates one System in that system's virtual environment and calls its methods
for the measuring process. Seconds are those of time.perf_counter(). A system that lacks
an operation raises Unsupported; the table shows the reason.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any


class Unsupported(Exception):
    """The system has no such operation."""


class System:
    """One system that runs jobs; adapters override what they can do."""

    def prepare(self) -> None:
        """Make the tables in an empty database."""
        raise NotImplementedError

    def clear(self) -> None:
        """Delete all jobs, finished ones included."""
        raise NotImplementedError

    def has_work(self) -> bool:
        """Return whether a job is waiting or running."""
        raise NotImplementedError

    def enqueue_one(self, handler: str, payload: dict[str, Any]) -> None:
        """Enqueue one job and commit it."""
        raise NotImplementedError

    def enqueue_each(self, handler: str, count: int) -> float:
        """Enqueue jobs with a commit for each; return the seconds."""
        started = time.perf_counter()
        for _ in range(count):
            self.enqueue_one(handler, {})
        return time.perf_counter() - started

    def enqueue_together(self, handler: str, count: int) -> float:
        """Enqueue jobs one by one in one transaction; return the seconds."""
        raise Unsupported("jobs are not part of a transaction")

    def enqueue_bulk(self, handler: str, count: int) -> float:
        """Enqueue jobs by the system's bulk call; return the seconds."""
        raise Unsupported("no call for many jobs")

    def enqueue(self, handler: str, count: int) -> None:
        """Enqueue jobs in the fastest way available; the time is not measured."""
        try:
            self.enqueue_bulk(handler, count)
        except Unsupported:
            try:
                self.enqueue_together(handler, count)
            except Unsupported:
                self.enqueue_each(handler, count)

    def enqueue_stamped(self) -> None:
        """Enqueue one job that records its delay until the start."""
        self.enqueue_one("stamp", {"sent": time.monotonic_ns()})

    def enqueue_urgent(self) -> None:
        """Enqueue one job with the highest priority that records its delay."""
        raise Unsupported("only asked of ours")

    def fill(self, finished: int, future: int) -> None:
        """Add finished jobs and jobs due in a year, by plain SQL."""
        raise Unsupported("finished and future jobs are not kept in PostgreSQL")

    def fill_others(self, pending: int) -> None:
        """Add pending jobs of a queue that no worker serves, by plain SQL."""
        raise Unsupported("measured for ours only")

    def worker_commands(
        self, processes: int, concurrency: int | None, handler: str
    ) -> list[list[str]]:
        """Return the commands that start workers; None is the default concurrency."""
        raise NotImplementedError

    def worker_environment(
        self, processes: int, concurrency: int | None, handler: str
    ) -> dict[str, str]:
        """Return additional environment variables of the workers."""
        return {}

    def close(self) -> None:
        """Close the connections."""


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


class AsyncSystem(System):
    """A system with an asynchronous interface: one event loop for all calls."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner(loop_factory=_loop_factory())

    def run(self, work: Awaitable[Any]) -> Any:
        """Wait for a coroutine on the system's event loop."""

        async def wait() -> Any:
            return await work

        return self.runner.run(wait())

    def close(self) -> None:
        self.runner.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop  # type: ignore[no-any-return]


def python(*arguments: str) -> list[str]:
    """Return a command for the Python of this virtual environment."""
    return [sys.executable, *arguments]


def script(name: str, *arguments: str) -> list[str]:
    """Return a command for a program of this virtual environment."""
    return [os.path.join(os.path.dirname(sys.executable), name), *arguments]


def database_url() -> str:
    return os.environ["DATABASE_URL"]


def redis_url() -> str:
    return os.environ["REDIS_URL"]
