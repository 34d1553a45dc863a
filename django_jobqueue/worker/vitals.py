"""Vitals: how a worker is, at one moment; and what that means to those who ask.

Read by the main thread of a supervisor, or of a worker without one, several times a
second. Pure: no clock, no database.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from .loop import STUCK


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What the main thread knows of its worker."""

    # Some process takes jobs.
    is_ready: bool = False
    # It drains, to end or (is_restarting) to start anew.
    is_stopping: bool = False
    is_restarting: bool = False
    # Monotonic: the last confirmed beat; 0.0 before the first.
    confirmed: float = 0.0
    # Names of loops that have died or do not come back.
    stuck: tuple[str, ...] = ()
    # Processes that run jobs, the jobs inside them, and those that have ended so far.
    processes: int = 0
    running: int = 0
    processed: int = 0

    def has_database(self, now: float, *, ttl: timedelta) -> bool:
        """Tell whether the database was reached lately."""
        return self.confirmed > 0 and now - self.confirmed <= ttl.total_seconds()


def find_deadly(vitals: Vitals, now: float, *, shown: float) -> list[str]:
    """Return why the process ought to be started again; `shown`: when its main thread
    last gave these vitals."""
    reasons = [f"the {name} loop is stuck" for name in vitals.stuck]
    if now - shown > STUCK:
        reasons.append(f"the main loop has been silent for {now - shown:.0f} s")
    return reasons


def find_unready(vitals: Vitals, now: float, *, ttl: timedelta) -> list[str]:
    """Return why no job can be expected to start here."""
    reasons = []
    if vitals.is_stopping:
        reasons.append("it drains")
    elif not vitals.is_ready:
        reasons.append("no process is ready yet")
    if not vitals.confirmed:
        reasons.append("the database has not confirmed a beat yet")
    elif not vitals.has_database(now, ttl=ttl):
        age = now - vitals.confirmed
        reasons.append(f"the database confirmed the last beat {age:.0f} s ago")
    return reasons
