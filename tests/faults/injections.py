"""The faults that `make faults` injects, by name; a new one is one more entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .crashes import crash_at
from .fault_round import FaultRound, RoundResult
from .hostile.full_round import run_all_cases
from .kills import kill_at_random
from .points import POINTS
from .stops import stop_groups, stop_without_rescue


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A fault that is injected in rounds, each with empty tables and new workers."""

    name: str
    # Runs one round, which takes a minute or two.
    run: Callable[[FaultRound], RoundResult]
    # Its part of the time of the whole run, relative to the others.
    share: int


def _crash_everywhere(fault_round: FaultRound) -> RoundResult:
    points = [point for point in POINTS if point.database in ("", fault_round.database)]
    return crash_at(fault_round, fault_round.rng.sample(points, len(points)), times=1)


INJECTIONS = [
    Injection(
        name="kill -9 of a random process",
        run=lambda fault_round: kill_at_random(fault_round, kills=50, jobs=5000),
        share=6,
    ),
    Injection(name="crash at a named point", run=_crash_everywhere, share=2),
    Injection(
        name="SIGSTOP of a group for two TTLs",
        run=lambda fault_round: stop_groups(fault_round, stops=6),
        share=1,
    ),
    Injection(
        name="SIGSTOP of a child for two TTLs",
        run=lambda fault_round: stop_without_rescue(fault_round, stops=4),
        share=1,
    ),
    Injection(
        name="hostile rows, handlers, receivers",
        run=lambda fault_round: run_all_cases(fault_round, rows=60, pairs=20),
        share=2,
    ),
]
