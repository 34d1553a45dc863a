"""ClaimInbox: what other threads report to the claim loop between two of its steps.

The listener, the finisher and maintenance write; the claim loop reads. Anyone may
NOTIFY, thousands of times a second: WakeLimit bounds how often that leads to a query.
Uses no database.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from .queue_shares import QueueShares

# Seconds between two useless wake-ups in the long run: no longer than a producer pauses
# between two of its notifications (WINDOW_SECONDS in storage/notify.py).
USELESS_WAKE_SECONDS = 0.05
# This many useless wake-ups may follow each other at once: often another worker is
# faster.
USELESS_WAKE_BURST = 20


@dataclass(slots=True, kw_only=True)
class Reports:
    """What was reported since the last read."""

    # {queue: lowest rank of a pending job}, of known queues.
    ranks: dict[str, int] = field(default_factory=dict)
    # A notification named a queue that this worker does not know yet.
    has_new_queue: bool = False
    # Monotonic: when the next delayed job is due.
    due: float = math.inf

    @property
    def has_pending(self) -> bool:
        return bool(self.ranks) or self.has_new_queue


class ClaimInbox:
    """Collects reports from any thread, until the claim loop reads them."""

    def __init__(self, shares: QueueShares) -> None:
        # Set if notifications may have been missed, or a cancel was requested for a
        # job in flight. The claim loop resets them.
        self.is_poll_requested = False
        self.is_cancel_reported = False
        self._shares = shares
        self._reports = Reports()
        self._lock = threading.Lock()

    @property
    def has_pending(self) -> bool:
        return self._reports.has_pending

    @property
    def due(self) -> float:
        return self._reports.due

    def add_pending(self, ranks: Mapping[str, int]) -> bool:
        """Add pending jobs, {queue: lowest rank}; True if the loop is to be woken.

        Only names of known queues are stored: a notification may name any number.
        """
        served = {
            name: rank for name, rank in ranks.items() if self._shares.serves(name)
        }
        if not served:
            return False
        with self._lock:
            reports = self._reports
            is_first = not reports.has_pending
            for name, rank in served.items():
                if self._shares.knows(name):
                    reports.ranks[name] = min(rank, reports.ranks.get(name, rank))
                else:
                    reports.has_new_queue = True
        return is_first

    def add_due(self, due: float) -> bool:
        """Add the (monotonic) due time of a job; True if it is the earliest one."""
        with self._lock:
            is_earliest = due < self._reports.due
            self._reports.due = min(due, self._reports.due)
        return is_earliest

    def read(self) -> Reports:
        """Take out what was reported."""
        with self._lock:
            reports, self._reports = self._reports, Reports()
        return reports


class WakeLimit:
    """Lets every notification through until too many were useless.

    A notification that brings work costs nothing here. One that does not is counted.
    After a burst of those the next one is read a little later, together with all that
    arrived in between.
    """

    def __init__(self) -> None:
        self._paid_until = 0.0

    @property
    def opens_at(self) -> float:
        """The (monotonic) moment from which on notifications are read."""
        return self._paid_until - USELESS_WAKE_BURST * USELESS_WAKE_SECONDS

    def note_useless(self, now: float) -> None:
        """Count a notification after which no job was found."""
        self._paid_until = max(self._paid_until, now) + USELESS_WAKE_SECONDS
