"""Idle: how long a worker has had nothing to do, for --idle-timeout."""

from __future__ import annotations

import math
from datetime import timedelta

from ..options import Options
from .vitals import Vitals


class IdleClock:
    """Counts from the last job on."""

    def __init__(self, options: Options) -> None:
        self._limit = _count_seconds(options.idle_timeout)
        self._ttl = options.heartbeat_ttl
        self._since = math.inf
        self._processed = 0

    def is_over(self, vitals: Vitals, now: float) -> bool:
        """Tell whether nothing ran for so long.

        Time in which nobody could know whether there is work does not count: before the
        first process is ready, and while the database is away.
        """
        is_idle = (
            vitals.is_ready
            and not vitals.running
            and vitals.processed == self._processed
            and vitals.has_database(now, ttl=self._ttl)
        )
        self._processed = vitals.processed
        if not is_idle:
            self._since = now
        return now - self._since >= self._limit


def _count_seconds(limit: timedelta | None) -> float:
    return math.inf if limit is None else limit.total_seconds()
