"""What every attempt of a worker shares: options, callbacks, the fence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ...options import Options
from ...storage.claims import Claim
from .job_connections import needs_reset, reset_connections


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnv:
    """What every attempt of one worker shares."""

    options: Options
    worker_id: UUID
    report_progress: Callable[[Claim, dict[str, Any]], None]
    report_started: Callable[[Claim], None]
    # Whether our heartbeat is overdue: then no job starts.
    is_fenced: Callable[[], bool] = lambda: False
    # Every worker uses the defaults of the rest. The testing kit sets them: it runs
    # attempts in the thread of a test, and must not close its connections.
    tidy: Callable[..., None] = reset_connections
    # Whether tidy() has anything to do before an attempt.
    needs_tidying: Callable[[], bool] = needs_reset
    # Called with what a handler raised, before that is judged.
    report_error: Callable[[BaseException], None] = lambda error: None
    # Whether exceptions for receivers keep the local variables of their frames.
    keeps_locals: bool = False
    # Inside a transaction of the caller: what commits here is a savepoint.
    is_enclosed: bool = False
