"""Cursors: where the next claim starts to read, so that dead entries are read once.

While a transaction pins the oldest snapshot, the index keeps an entry for every job
that was ever claimed, and a claim that starts at the lowest rank reads them all again.
So a worker remembers, for each queue and priority, the last rank it claimed. Jobs with
other ranks (a late commit, a row that was locked) are found through notifications, and
by a sweep over all ranks now and then. Uses no database.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from ...storage.claims import HIGHEST, LOWEST, NIL, Claim, Span, whole_queue
from .sweep import FIRST_PART_MICROSECONDS, PAUSE_FACTOR, Sweep

# Commits come in another order than ranks: every claim reads this far back again.
LATE_COMMIT_MICROSECONDS = 1_000_000
# By how much our estimate of the database's clock may be wrong.
CLOCK_ERROR_MICROSECONDS = 1_000_000
# A priority without a claim for this long is left to the sweeps.
CURSOR_SECONDS = 60.0
# If reading the ranks that a notification named takes longer than this, a pause
# follows, as after a sweep: anyone may notify.
SLOW_NOTICE_SECONDS = 0.05


class Cursors:
    """The ranks at which one worker expects its jobs."""

    def __init__(self, aging: timedelta) -> None:
        self._aging = aging // timedelta(microseconds=1)
        # queue → priority → (rank and id of the last job claimed, monotonic time)
        self._heads: dict[str, dict[int, tuple[int, UUID, float]]] = {}
        # queue → the lowest rank that a notification named and no claim has read.
        self._noticed: dict[str, int] = {}
        # Microseconds that the database's clock is ahead of our monotonic one; None
        # before the first claim.
        self._offset: int | None = None
        self._sweep = Sweep()
        self._is_sweep = False
        self._ignore_notices_until = 0.0

    def note_pending(self, queue: str, rank: int) -> None:
        """Note that a job with this rank is pending."""
        self._noticed[queue] = min(rank, self._noticed.get(queue, rank))

    def choose_spans(self, queues: Iterable[str], now: float) -> list[Span] | None:
        """Return what a claim from these queues is to read; None: all ranks."""
        self._is_sweep = now >= self._sweep.next_at
        if self._is_sweep:
            return self._sweep.list_spans(queues)
        return [span for queue in queues for span in self._list_spans(queue, now)]

    def give_up(self, *, began: float, now: float) -> bool:
        """Learn from a claim that timed out; False if no claim can read less.

        The next claim starts at the cursors, and the sweep goes on in parts.
        """
        if self._sweep.is_slow and not self._is_sweep:
            return False
        self._sweep.fail(began=began, now=now, clock=self._read_clock(now))
        return True

    def note(
        self,
        claims: Sequence[Claim],
        spans: Sequence[Span] | None,
        *,
        began: float,
        now: float,
    ) -> None:
        """Learn from a claim that ran from `began` to `now` (monotonic)."""
        if self._is_sweep or spans is None:
            self._sweep.note(began=began, now=now, has_found=bool(claims))
        elif self._noticed and began >= self._ignore_notices_until:
            for span in spans or ():
                self._noticed.pop(span.queue, None)
            if now - began > SLOW_NOTICE_SECONDS:
                self._ignore_notices_until = now + PAUSE_FACTOR * (now - began)
        if spans is None:
            self._noticed.clear()
        self._move_heads(claims, now)

    def _move_heads(self, claims: Sequence[Claim], now: float) -> None:
        for claim in claims:
            heads = self._heads.setdefault(claim.queue, {})
            rank, id, _ = heads.get(claim.priority, (LOWEST, NIL, 0.0))
            # A sweep finds older jobs, but never moves a cursor back.
            rank, id = max((rank, id), (claim.rank, claim.id))
            heads[claim.priority] = (rank, id, now)
        if claims:
            moment = round(claims[-1].claimed_at.timestamp() * 1_000_000)
            self._offset = moment - round(now * 1_000_000)

    def _list_spans(self, queue: str, now: float) -> list[Span]:
        heads = self._heads.get(queue, {})
        self._heads[queue] = heads = {
            priority: head
            for priority, head in heads.items()
            if now - head[2] < CURSOR_SECONDS
        }
        clock = self._read_clock(now)
        if not heads and not self._sweep.is_slow:
            return [whole_queue(queue)]
        spans = []
        for priority, (rank, id, _) in heads.items():
            top = clock - priority * self._aging
            low, after = min((rank, id), (top - LATE_COMMIT_MICROSECONDS, NIL))
            spans.append(Span(queue, low, after, top + CLOCK_ERROR_MICROSECONDS))
        if not heads:
            spans.append(Span(queue, clock - FIRST_PART_MICROSECONDS, NIL, HIGHEST))
        if (span := self._find_noticed(queue, spans, now)) is not None:
            spans.append(span)
        return _merge(spans)

    def _find_noticed(
        self, queue: str, spans: Sequence[Span], now: float
    ) -> Span | None:
        """Return the span of a rank that a notification named, if `spans` miss it."""
        rank = self._noticed.get(queue)
        if rank is None or now < self._ignore_notices_until:
            return None
        if any(span.covers(rank) for span in spans):
            return None
        # Where a sweep is too slow, reading everything below may be too.
        is_slow = self._sweep.is_slow
        low = max(LOWEST, rank - LATE_COMMIT_MICROSECONDS) if is_slow else LOWEST
        return Span(queue, low, NIL, rank)

    def _read_clock(self, now: float) -> int:
        """Return the rank of this moment; by our own clock before the first claim."""
        if self._offset is None:
            return time.time_ns() // 1000
        return round(now * 1_000_000) + self._offset


def _merge(spans: list[Span]) -> list[Span]:
    """Return the same ranks without overlaps, the lowest first."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.low, span.after)):
        if merged and span.low <= merged[-1].high:
            last = merged[-1]
            merged[-1] = last._replace(high=max(last.high, span.high))
        else:
            merged.append(span)
    return merged
