"""Shortage: since when no thread or event loop could be started. Watched by Health."""

from __future__ import annotations

import math
import time

# Without a failed start for this long, a shortage is over.
SHORTAGE_OVER_SECONDS = 10.0


class Shortage:
    """Since when every start that was needed has failed."""

    name = "threads"
    is_curable = True

    def __init__(self) -> None:
        self._since = self._last = -math.inf

    def note(self) -> None:
        """Note a start that failed."""
        now = time.monotonic()
        if now - self._last > SHORTAGE_OVER_SECONDS:
            self._since = now
        self._last = now

    def clear(self) -> None:
        """Note a start that worked."""
        self._last = -math.inf

    @property
    def stalled_since(self) -> float:
        """The (monotonic) moment of the first failed start; inf: there is none, or
        no start was needed for a while."""
        is_over = time.monotonic() - self._last > SHORTAGE_OVER_SECONDS
        return math.inf if is_over else self._since
