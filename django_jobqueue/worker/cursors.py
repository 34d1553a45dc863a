"""Cursors: where the next claim begins to read, so that dead entries are read once.

While some transaction pins the oldest snapshot, the index keeps an entry for every job
that was ever claimed, and a claim that begins at the lowest rank walks them all again.
So a worker remembers, for each queue and priority, how far it has come. What lies
elsewhere (a commit that came late, a row that somebody held) is found by what
notifications say, and by a sweep over everything now and then. Pure: no database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from ..lifecycle.claim import LOWEST, NIL, Claim, Span, whole

# Commits come in another order than ranks: so far back every claim looks again.
MARGIN = 1_000_000
# What our idea of the database's clock may be wrong by.
SLACK = 1_000_000
# A priority of which nothing was claimed for so long is left to the sweeps.
LATELY = 60.0
# A sweep takes at most a twentieth of the time.
SWEEP_SHARE = 20
SWEEP_PAUSE = 0.1


class Cursors:
    """What one worker knows of the places where its jobs are."""

    def __init__(self, aging: timedelta) -> None:
        self._aging = aging // timedelta(microseconds=1)
        # queue → priority → (the last job claimed, the monotonic time of that)
        self._heads: dict[str, dict[int, tuple[int, UUID, float]]] = {}
        # queue → the lowest rank that somebody told of and no claim has looked at.
        self._heard: dict[str, int] = {}
        # Microseconds that the database's clock is ahead of our monotonic one.
        self._offset = 0
        self._next_sweep = 0.0

    def hear(self, queue: str, rank: int) -> None:
        """Learn of a pending job with this rank."""
        self._heard[queue] = min(rank, self._heard.get(queue, rank))

    def choose_spans(self, queues: Iterable[str], now: float) -> list[Span] | None:
        """Return what a claim from these queues is to read; None: everything."""
        if now >= self._next_sweep:
            return None
        return [span for queue in queues for span in self._list_spans(queue, now)]

    def note(
        self,
        claims: Sequence[Claim],
        spans: Sequence[Span] | None,
        *,
        began: float,
        now: float,
    ) -> None:
        """Learn from a claim that began and ended at these (monotonic) moments."""
        if spans is None:
            self._next_sweep = now + max(SWEEP_PAUSE, SWEEP_SHARE * (now - began))
            self._heard.clear()
        for span in spans or ():
            self._heard.pop(span.queue, None)
        for claim in claims:
            heads = self._heads.setdefault(claim.queue, {})
            rank, id, _ = heads.get(claim.priority, (LOWEST, NIL, 0.0))
            # A sweep finds what was left behind, and never moves a cursor back.
            rank, id = max((rank, id), (claim.rank, claim.id))
            heads[claim.priority] = (rank, id, now)
        if claims:
            moment = round(claims[-1].claimed_at.timestamp() * 1_000_000)
            self._offset = moment - round(now * 1_000_000)

    def _list_spans(self, queue: str, now: float) -> list[Span]:
        heads = self._heads.get(queue, {})
        self._heads[queue] = heads = {
            priority: head for priority, head in heads.items() if now - head[2] < LATELY
        }
        if not heads:
            return [whole(queue)]
        clock = round(now * 1_000_000) + self._offset
        spans = []
        for priority, (rank, id, _) in heads.items():
            top = clock - priority * self._aging
            low, after = min((rank, id), (top - MARGIN, NIL))
            spans.append(Span(queue, low, after, top + SLACK))
        heard = self._heard.get(queue)
        if heard is not None and not any(span.covers(heard) for span in spans):
            spans.append(Span(queue, LOWEST, NIL, heard))
        return _merge(spans)


def _merge(spans: list[Span]) -> list[Span]:
    """Return the same ground without overlaps, the lowest ranks first."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.low, span.after)):
        if merged and span.low <= merged[-1].high:
            last = merged[-1]
            merged[-1] = last._replace(high=max(last.high, span.high))
        else:
            merged.append(span)
    return merged
