"""JobContext: what a handler can read about its attempt, and report while it runs.

Created by worker/running/prepare.py for each attempt. Other threads set the flags
(claim, deadlines, shutdown); the handler only reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async

from .exceptions import InvalidOption, LeaseLost
from .failures import clean_text

logger = logging.getLogger("django_jobqueue.job")


@dataclass(slots=True, kw_only=True)
class AttemptFlags:
    """Flags that other threads set on a running attempt."""

    stopping: bool = False
    cancelled: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """The first argument, named `context`, of a handler with takes_context=True."""

    job_id: UUID
    job_type: str
    # From 1.
    attempt: int
    max_attempts: int
    # When this attempt times out.
    deadline: datetime
    # Grows with every claim of the job. An external system that remembers the highest
    # value it has seen can refuse writes of an older attempt.
    fence: int = 0
    logger: logging.Logger = logger
    _flags: AttemptFlags = field(default_factory=AttemptFlags, repr=False)
    _report: Callable[[dict[str, Any]], None] = field(
        default=lambda progress: None, repr=False
    )

    _is_owned: Callable[[], bool] = field(default=lambda: True, repr=False)
    _read_meta: Callable[[], dict[str, Any]] = field(default=dict, repr=False)

    @property
    def stopping(self) -> bool:
        """True once the worker shuts down: return soon, or raise Snooze."""
        return self._flags.stopping

    @property
    def cancelled(self) -> bool:
        """True once the job was asked to cancel."""
        return self._flags.cancelled

    def progress(self, fraction: float, note: str = "") -> None:
        """Record how far the job is, from 0 to 1. Does not wait for the database.

        Raises LeaseLost if another worker has taken the job over.
        """
        if self._flags.lost:
            raise LeaseLost
        if not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise InvalidOption(
                f"progress() takes a fraction from 0 to 1, not {fraction!r}."
            )
        self._report(
            {"fraction": round(float(fraction), 4), "note": clean_text(str(note))}
        )

    def assert_owned(self) -> None:
        """Raise LeaseLost if another worker has taken the job over.

        Call it before an effect that must not happen twice. Reads one row through
        Django's connection and takes no lock.
        """
        if self._flags.lost or not self._is_owned():
            raise LeaseLost

    async def aassert_owned(self) -> None:
        """See assert_owned()."""
        if self._flags.lost or not await sync_to_async(self._is_owned)():
            raise LeaseLost

    def read_meta(self) -> dict[str, Any]:
        """Return the `meta` the job was enqueued with. Reads one row."""
        return self._read_meta()

    async def aread_meta(self) -> dict[str, Any]:
        """See read_meta()."""
        return await sync_to_async(self._read_meta)()

    def idempotency_key(self, name: str = "") -> str:
        """Return a key that is the same in every attempt and after a requeue."""
        return f"{self.job_id}:{name}" if name else str(self.job_id)
