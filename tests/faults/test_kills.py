"""kill -9 of random processes: nothing lost, nothing late accepted, all counted."""

from __future__ import annotations

import pytest

from .kills import kill_at_random
from .scene import Scene

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


@pytest.mark.postgresql
def test_30_kills_over_3000_jobs_lose_and_double_nothing(scene: Scene) -> None:
    tally = kill_at_random(scene, kills=30, jobs=3000)

    assert not tally.findings, str(tally.findings)


@pytest.mark.sqlite
def test_kills_lose_and_double_nothing_on_sqlite(scene: Scene) -> None:
    tally = kill_at_random(scene, kills=6, jobs=300)

    assert not tally.findings, str(tally.findings)
