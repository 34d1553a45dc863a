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
from ..exceptions import Interruption, JobTimeout
from ..lifecycle.claim import Claim
from .board import Board, Overrun
from .connections import cancel_queries, find_backends, list_connections


@dataclass(slots=True, eq=False)
class HeldJob:
    """One claim and what its attempt needs to be told."""

    claim: Claim
    # What the supervisor sees of it; None: there is none.
    board: Board | None = None
    # Seconds between the word that it is to stop and its end by force.
    grace: float = 0.0
    held_since: float = field(default_factory=time.monotonic)
    flags: AttemptFlags = field(default_factory=AttemptFlags)
    # Monotonic: when the handler was called, and when it times out.
    started: float | None = None
    deadline: float | None = None
    # Set while the handler runs, by the thread or task that runs it.
    thread: int | None = None
    task: asyncio.Task[None] | None = None
    # Where it stands on the board while the handler runs, and after that if it may not
    # start again.
    place: int | None = None
    kept: int | None = None
    is_last: bool = False
    # Seconds until a next attempt after a time-out, if that is known.
    retry_delay: float | None = None
    # Its own transaction bears its end: nobody can take it away before the commit, and
    # after that hooks may still run.
    has_end: bool = False
    # Its ending was handed over: whatever comes second is not an ending.
    is_ended: bool = False
    # Django's connections of that thread, whose SQL an interruption breaks off.
    wrappers: list[Any] = field(default_factory=list)
    # What was raised into the handler from outside.
    interruption: type[Interruption] | None = None
    # Taken to enter and leave the handler and to interrupt it, so that an exception
    # never lands in the worker's own code.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, *, timeout: float, most: int = 0) -> None:
        """Note that this thread is about to call the handler, for an attempt of at
        `most` so many."""
        with self.lock:
            self._begin(timeout, most)
            self.thread = threading.get_ident()
            self.wrappers = list_connections()

    def enter_task(self, *, timeout: float, most: int = 0) -> None:
        """Note that this task is about to call the handler; it times out by itself."""
        with self.lock:
            self._begin(timeout, most)

    def _begin(self, timeout: float, most: int) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + timeout
        self.is_last = most == 1
        self.has_end = False
        if self.board is not None:
            limit = self.deadline + self.grace
            self.place = self.board.enter(
                self.claim, entered=self.started, limit=limit, most=most
            )

    def leave(self) -> None:
        """Note that the handler has returned; take back what was not delivered."""
        with self.lock:
            if self.thread is not None and self.interruption is not None:
                _set_async_exception(self.thread, None)
            self.thread = None
            self.deadline = None
            if self.board is not None and self.place is not None:
                if self.is_last:
                    # A crash before its end is written must not start it again.
                    self.kept = self.board.keep(self.claim)
                self.board.leave(self.place)
                self.place = None

    def forget(self) -> None:
        """Note that its end is written."""
        if self.board is not None and self.kept is not None:
            self.board.forget(self.kept)
            self.kept = None

    def overrun(self, *, retry_delay: float | None) -> None:
        """Note that the time is up: interrupt a thread, let the supervisor know."""
        self.retry_delay = retry_delay
        if self.thread is not None:
            self.interrupt(JobTimeout)
            return
        with self.lock:
            self.deadline = None
            self._set_limit(JobTimeout)

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
            self._set_limit(cause)
            if self.task is not None:
                self.task.get_loop().call_soon_threadsafe(self.task.cancel)
            elif self.thread is not None:
                cancel_queries(self.wrappers)
                _set_async_exception(self.thread, cause)
            return True

    def _set_limit(self, cause: type[Interruption]) -> None:
        """Let the supervisor know when to end what does not listen. Holds the lock."""
        if self.board is None or self.place is None:
            return
        is_timeout = issubclass(cause, JobTimeout)
        self.board.limit(
            self.place,
            time.monotonic() + self.grace,
            Overrun.TIMEOUT if is_timeout else Overrun.CANCELLED,
            delay=self.retry_delay,
            pids=find_backends(self.wrappers),
        )


def _set_async_exception(thread: int, cause: type[BaseException] | None) -> None:
    exception = ctypes.py_object(cause) if cause is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


class HeldJobs:
    """All claims of this worker that have not been written off."""

    def __init__(self, board: Board | None = None, *, grace: float = 0.0) -> None:
        self._board = board
        self._grace = grace
        self._jobs: dict[UUID, HeldJob] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, claims: Iterable[Claim]) -> list[HeldJob]:
        jobs = [HeldJob(claim, self._board, self._grace) for claim in claims]
        with self._lock:
            self._jobs.update((job.claim.id, job) for job in jobs)
        return jobs

    def remove(self, claims: Iterable[Claim]) -> None:
        with self._lock:
            for claim in claims:
                held = self._jobs.pop(claim.id, None)
                if held is None:
                    continue
                if held.claim.lease_token == claim.lease_token:
                    held.forget()
                else:
                    # Claimed again by us meanwhile.
                    self._jobs[claim.id] = held

    def find(self, id: UUID) -> HeldJob | None:
        return self._jobs.get(id)

    def list(self) -> list[HeldJob]:
        with self._lock:
            return list(self._jobs.values())
