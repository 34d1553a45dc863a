"""PoolWatch: whether job threads still get connections from Django's pool.

A worker never runs more jobs than the pool has connections, so a job waits for one only
if other threads hold them: threads that jobs have left behind, or a receiver that
hangs. A new process has a new pool. Health checks it once a second.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from django.db import connections

from .connections import find_pool_size
from .in_flight import InFlightJob, InFlightJobs

# Without a waiting job for this long the shortage is over: jobs that got no connection
# are given back, and the next one may come later.
SHORTAGE_OVER_SECONDS = 10.0


class PoolWatch:
    """Since when a job waits for a connection that no job holds."""

    name = "pool"
    is_curable = True

    def __init__(self, in_flight: InFlightJobs) -> None:
        self._in_flight = in_flight
        self._aliases = [alias for alias in connections if find_pool_size(alias)]
        self._since = math.inf
        self._last = -math.inf

    @property
    def stalled_since(self) -> float:
        """The (monotonic) moment of the first check that found a shortage; inf: none
        did for a while."""
        now = time.monotonic()
        if self._is_starved():
            self._since, self._last = min(self._since, now), now
        elif now - self._last > SHORTAGE_OVER_SECONDS:
            self._since = math.inf
        return self._since

    def _is_starved(self) -> bool:
        for alias in self._aliases:
            pool = _find_pool(alias)
            if pool is not None and _is_exhausted(pool):
                running = [
                    job for job in self._in_flight.list() if job.thread is not None
                ]
                in_jobs = sum(_count_connections(job, alias) for job in running)
                if in_jobs < pool.max_size and any(map(_waits_for_pool, running)):
                    return True
        return False


def _find_pool(alias: str) -> Any:
    """Return Django's pool if it is open; `connection.pool` would open one."""
    pools = getattr(type(connections[alias]), "_connection_pools", {})
    return pools.get(alias)


def _is_exhausted(pool: Any) -> bool:
    stats = pool.get_stats()
    return bool(
        stats.get("requests_waiting")
        and not stats.get("pool_available")
        and stats.get("pool_size", 0) >= pool.max_size
    )


def _count_connections(job: InFlightJob, alias: str) -> int:
    return sum(
        wrapper.alias == alias and wrapper.connection is not None
        for wrapper in list(job.wrappers)
    )


def _waits_for_pool(job: InFlightJob) -> bool:
    frame = sys._current_frames().get(job.thread or 0)
    return any(
        str(each.f_globals.get("__name__")).startswith("psycopg_pool.")
        for each in _walk(frame)
    )


def _walk(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
