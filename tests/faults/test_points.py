"""A crash at every named point: atomic effects exactly once, others at least once."""

from __future__ import annotations

import re

import pytest

from tests.processes import ROOT

from .crashes import crash_at
from .fault_round import FaultRound
from .points import PARTS, POINTS, find_owner, list_points


def test_there_are_more_than_twenty_points() -> None:
    assert len({point.name for point in POINTS}) == len(POINTS) > 20


@pytest.mark.parametrize("target", sorted({point.target for point in POINTS}))
def test_every_point_names_a_function_that_exists(target: str) -> None:
    owner, name = find_owner(target)
    assert callable(getattr(owner, name))


def test_every_point_is_documented() -> None:
    page = (ROOT / "docs" / "design" / "faults.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)
    assert rows == [point.name for point in POINTS]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("part", PARTS)
def test_crashes_at_every_point_lose_and_double_nothing(
    fault_round: FaultRound, part: str
) -> None:
    points = list_points(part, fault_round.database)

    result = crash_at(
        fault_round, points, times=2 if fault_round.database == "postgresql" else 1
    )

    assert not result.findings, str(result.findings)
