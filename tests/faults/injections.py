"""The faults that `make faults` injects, by name. A new suite is one more line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .crashes import crash_at
from .kills import kill_at_random
from .points import POINTS
from .scene import Scene, Tally
from .stops import stop_groups, stop_unnoticed


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault, injected in rounds: fresh tables, fresh workers, the checker."""

    name: str
    # One round; it takes a minute or two.
    run: Callable[[Scene], Tally]
    # Of the time of the whole run, relative to the others.
    share: int


def _crash_everywhere(scene: Scene) -> Tally:
    points = [point for point in POINTS if point.database in ("", scene.database)]
    return crash_at(scene, scene.rng.sample(points, len(points)), times=1)


INJECTIONS = [
    Injection(
        name="kill -9 of a random process",
        run=lambda scene: kill_at_random(scene, kills=50, jobs=5000),
        share=6,
    ),
    Injection(name="crash at a named point", run=_crash_everywhere, share=2),
    Injection(
        name="SIGSTOP of a group for two TTLs",
        run=lambda scene: stop_groups(scene, stops=6),
        share=1,
    ),
    Injection(
        name="SIGSTOP of a child for two TTLs",
        run=lambda scene: stop_unnoticed(scene, stops=4),
        share=1,
    ),
]
