"""Seats: the places that a supervisor keeps taken, one child in each."""

from __future__ import annotations

from dataclasses import dataclass

from ..options import Options
from .children import Child

# One that lived for less counts as failed at its start.
SHORT_LIFE = 10.0
LONGEST_PAUSE = 5.0


@dataclass(slots=True, eq=False)
class Seat:
    """A place for one child, to be taken as long as there is work for it."""

    options: Options
    is_isolated: bool = False
    child: Child | None = None
    # Started to take over when it is ready.
    successor: Child | None = None
    # Its child has come to the end of its own accord (--burst, --once).
    is_done: bool = False
    # Short lives in a row, and the (monotonic) moment before which none is started.
    failures: int = 0
    not_before: float = 0.0

    def count_running(self) -> int:
        return 0 if self.child is None else self.child.board.counts.running

    def plan_restart(self, child: Child, now: float) -> None:
        """Choose when the next one may start: later, if short lives follow each
        other."""
        is_short = now - child.started < SHORT_LIFE
        self.failures = self.failures + 1 if is_short else 0
        pause = 0.25 * 2.0 ** min(self.failures, 10) if self.failures > 1 else 0.0
        self.not_before = now + min(pause, LONGEST_PAUSE)
