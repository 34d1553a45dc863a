"""What a worker holds: its claims, from the reply of the claim to the written end.

The claim thread adds, the finish thread removes, and whoever must tell an attempt
something (cancel, shutdown, timeout) finds it here.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ..context import AttemptFlags
from ..exceptions import Interruption
from ..lifecycle.claim import Claim
from .connections import cancel_queries, list_connections


@dataclass(slots=True, eq=False)
class HeldJob:
    """One claim and what its attempt needs to be told."""

    claim: Claim
    held_since: float = field(default_factory=time.monotonic)
    flags: AttemptFlags = field(default_factory=AttemptFlags)
    # Monotonic: when the handler was called, and when it times out.
    started: float | None = None
    deadline: float | None = None
    # Set while the handler runs, by the thread or task that runs it.
    thread: int | None = None
    task: asyncio.Task[None] | None = None
    # Its ending was handed over: whatever comes second is not an ending.
    is_ended: bool = False
    # Django's connections of that thread, whose SQL an interruption breaks off.
    wrappers: list[Any] = field(default_factory=list)
    # What was raised into the handler from outside.
    interruption: type[Interruption] | None = None
    # Taken to enter and leave the handler and to interrupt it, so that an exception
    # never lands in the worker's own code.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, *, timeout: float) -> None:
        """Note that this thread is about to call the handler."""
        with self.lock:
            self.started = time.monotonic()
            self.deadline = self.started + timeout
            self.thread = threading.get_ident()
            self.wrappers = list_connections()

    def leave(self) -> None:
        """Note that the handler has returned; take back what was not delivered."""
        with self.lock:
            if self.thread is not None and self.interruption is not None:
                _set_async_exception(self.thread, None)
            self.thread = None
            self.deadline = None

    def end(self) -> bool:
        """Note that the attempt has ended; False if somebody said so before."""
        with self.lock:
            was_ended, self.is_ended = self.is_ended, True
            return not was_ended

    def interrupt(self, cause: type[Interruption]) -> bool:
        """Raise `cause` in the handler, once; tell whether it was inside one.

        Its running SQL is cancelled first: a thread hears nothing while it waits in C.
        All under the lock: a job that ends just now must not leave before, or the
        query of the next one on its thread would be cancelled.
        """
        with self.lock:
            is_inside = self.thread is not None or self.task is not None
            if self.interruption is not None or not is_inside:
                return False
            self.interruption = cause
            if self.task is not None:
                self.task.get_loop().call_soon_threadsafe(self.task.cancel)
            elif self.thread is not None:
                cancel_queries(self.wrappers)
                _set_async_exception(self.thread, cause)
            return True


def _set_async_exception(thread: int, cause: type[BaseException] | None) -> None:
    exception = ctypes.py_object(cause) if cause is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


class HeldJobs:
    """All claims of this worker that have not been written off."""

    def __init__(self) -> None:
        self._jobs: dict[UUID, HeldJob] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, claims: Iterable[Claim]) -> list[HeldJob]:
        jobs = [HeldJob(claim) for claim in claims]
        with self._lock:
            self._jobs.update((job.claim.id, job) for job in jobs)
        return jobs

    def remove(self, claims: Iterable[Claim]) -> None:
        with self._lock:
            for claim in claims:
                held = self._jobs.get(claim.id)
                if held is not None and held.claim.lease_token == claim.lease_token:
                    del self._jobs[claim.id]

    def find(self, id: UUID) -> HeldJob | None:
        return self._jobs.get(id)

    def list(self) -> list[HeldJob]:
        with self._lock:
            return list(self._jobs.values())
