"""Notices: the payloads of notifications on the channel `jobqueue`.

Every role that can connect may NOTIFY, so a payload is checked like any other input:
names, numbers and shapes. An invalid payload is read as None. notify.py writes them,
the listener reads them. Pure: no database.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from ..options import QUEUE_NAME
from .claims import HIGHEST, LOWEST

# A worker polls every 15 s anyway: a later time is of no use to it.
LATEST_DUE_SECONDS = 86_400.0


class PendingNotice(NamedTuple):
    """Jobs became pending: {queue: lowest rank}."""

    ranks: dict[str, int]


class DueNotice(NamedTuple):
    """A scheduled job is due in so many seconds."""

    seconds: float


class CancelNotice(NamedTuple):
    """A cancel was requested for a job that this worker ran."""

    job_id: UUID
    worker_id: UUID


Notice: TypeAlias = PendingNotice | DueNotice | CancelNotice


def read_notice(payload: str) -> Notice | None:
    """Return the notice in a payload; None if the payload is invalid."""
    try:
        message = json.loads(payload)
    # RecursionError: 8,000 opening brackets fit into one notification.
    except (ValueError, RecursionError):
        return None
    match message:
        case {"pending": dict(ranks)} if ranks and all(map(_is_rank, ranks.items())):
            return PendingNotice(ranks)
        case {"due": float() | int() as seconds} if _is_delay(seconds):
            return DueNotice(float(seconds))
        case {"cancel": str(job_id), "worker": str(worker_id)}:
            return _read_cancel(job_id, worker_id)
    return None


def _is_rank(item: tuple[str, Any]) -> bool:
    queue, rank = item
    # Not isinstance: True is an int too.
    is_bigint = type(rank) is int and LOWEST <= rank <= HIGHEST
    return is_bigint and QUEUE_NAME.fullmatch(queue) is not None


def _is_delay(seconds: float) -> bool:
    # NaN is in no interval.
    return type(seconds) is not bool and 0 <= seconds <= LATEST_DUE_SECONDS


def _read_cancel(job_id: str, worker_id: str) -> CancelNotice | None:
    try:
        return CancelNotice(UUID(job_id), UUID(worker_id))
    except ValueError:
        return None
