"""What every attempt of a worker works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ..lifecycle.claim import Claim
from ..options import Options
from .connections import tidy_connections


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every attempt of this worker works with."""

    options: Options
    worker_id: UUID
    report_progress: Callable[[Claim, dict[str, Any]], None]
    report_started: Callable[[Claim], None]
    # Whether our heartbeat is overdue: then nothing is begun.
    is_fenced: Callable[[], bool] = lambda: False
    # The rest is as it stands in every worker; the testing kit runs attempts in the
    # thread of a test, on connections that are not its own to close.
    tidy: Callable[..., None] = tidy_connections
    # Told of what a handler raised, before it is judged.
    report_error: Callable[[BaseException], None] = lambda error: None
    # Inside a transaction of the caller: what commits here is a savepoint.
    is_enclosed: bool = False
