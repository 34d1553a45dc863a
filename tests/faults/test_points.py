"""A crash at every named point: atomic effects exactly once, others at least once."""

from __future__ import annotations

import re

import pytest

from tests.processes import ROOT

from .crashes import crash_at
from .points import PARTS, POINTS, list_points
from .scene import Scene


def test_there_are_twenty_points_and_more() -> None:
    assert len({point.name for point in POINTS}) == len(POINTS) > 20


def test_every_point_is_documented() -> None:
    page = (ROOT / "docs" / "design" / "faults.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)
    assert rows == [point.name for point in POINTS]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("part", PARTS)
def test_crashes_at_every_point_lose_and_double_nothing(
    scene: Scene, part: str
) -> None:
    points = list_points(part, scene.database)

    tally = crash_at(scene, points, times=2 if scene.database == "postgresql" else 1)

    assert not tally.findings, str(tally.findings)
