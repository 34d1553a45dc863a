"""Measure and Scale: the types that all measures use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.catalog import Peer
from benchmarks.driver import System

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The sizes of a run: jobs, rounds, seconds."""

    jobs: int = 20_000
    seconds: float = 30.0
    rounds: int = 3
    history: int = 500_000
    backlog: int = 1_000_000
    pinned: int = 300_000
    memory: int = 100_000
    latencies: int = 50
    idle_seconds: float = 20.0
    # Seconds after which a measure gets no further round.
    budget: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One measure, and the systems it applies to."""

    name: str
    title: str
    text: str
    run: Callable[[System, Scale], Numbers]
    systems: Callable[[Peer], bool]
    # Rough duration of one call, for the first estimate of the time left.
    seconds: float
    more_is_better: bool = True


def count_for(peer: Peer, scale: Scale, *, most: int = 0) -> int:
    """Return how many jobs keep a system busy for about a third of the limit."""
    by_rate = int(peer.rate * scale.seconds / 3)
    return max(200, min(most or scale.jobs, by_rate))


def patient(scale: Scale) -> Scale:
    """Return the scale with four times the seconds, for long drains."""
    return replace(scale, seconds=scale.seconds * 4)
