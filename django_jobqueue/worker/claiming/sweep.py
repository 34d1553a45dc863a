"""Sweep: the claim that reads all ranks, now and then; in parts if that is too slow.

Under a pinned snapshot, dead index entries may keep a sweep from ending within its
statement time-out. It is then retried in parts of the ranks, the newest first, each
halved until it fits. Claims by the cursors go on in between. Pure: no database.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...storage.claims import HIGHEST, LOWEST, NIL, Span

# After a sweep the pause is this many times as long: a sweep takes at most a twentieth
# of the time.
PAUSE_FACTOR = 20
MIN_SWEEP_PAUSE_SECONDS = 0.1
# After a sweep in parts, until all ranks are tried at once again.
RETRY_WHOLE_SECONDS = 60.0
# Microseconds of rank: the first part, and a part that is not divided any more.
FIRST_PART_MICROSECONDS = 60_000_000
MIN_PART_MICROSECONDS = 1_000_000


class Sweep:
    """When to sweep, and over which ranks."""

    def __init__(self) -> None:
        self.next_at = 0.0
        # True from a sweep that timed out until one over all ranks has worked.
        self.is_slow = False
        # (low, high) of what is left of a sweep in parts; empty: all ranks at once.
        self._parts: list[tuple[int, int]] = []

    def list_spans(self, queues: Iterable[str]) -> list[Span] | None:
        """Return what the sweep is to read of these queues; None: all ranks."""
        if not self._parts:
            return None
        low, high = self._parts[0]
        return [Span(queue, low, NIL, high) for queue in queues]

    def note(self, *, began: float, now: float, has_found: bool) -> None:
        """Learn from a sweep that worked."""
        self.next_at = now + max(MIN_SWEEP_PAUSE_SECONDS, PAUSE_FACTOR * (now - began))
        if not self._parts:
            self.is_slow = False
        elif not has_found:
            self._next_part(now)

    def fail(self, *, began: float, now: float, clock: int) -> None:
        """Learn from a sweep that timed out; `clock` is the rank of this moment."""
        self.is_slow = True
        # Half of the time is for the claims by the cursors.
        self.next_at = now + max(MIN_SWEEP_PAUSE_SECONDS, now - began)
        low, high = self._parts[0] if self._parts else (LOWEST, HIGHEST)
        middle = _find_middle(low, high, clock)
        if (
            middle - low < MIN_PART_MICROSECONDS
            or high - middle < MIN_PART_MICROSECONDS
        ):
            self._next_part(now)
        else:
            self._parts[:1] = [(middle, high), (low, middle)]

    def _next_part(self, now: float) -> None:
        del self._parts[:1]
        if not self._parts:
            self.next_at = max(self.next_at, now + RETRY_WHOLE_SECONDS)


def _find_middle(low: int, high: int, clock: int) -> int:
    """Return where to divide; an open end is split by its distance from now."""
    if low == LOWEST and high == HIGHEST:
        return clock - FIRST_PART_MICROSECONDS
    if low == LOWEST:
        return max(LOWEST, high - max(FIRST_PART_MICROSECONDS, 2 * (clock - high)))
    if high == HIGHEST:
        return (low + max(clock, low + MIN_PART_MICROSECONDS)) // 2
    return (low + high) // 2
