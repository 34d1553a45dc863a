"""kill -9 of random processes: nothing is lost, doubled or miscounted."""

from __future__ import annotations

import pytest

from .fault_round import FaultRound
from .kills import kill_at_random

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


@pytest.mark.postgresql
def test_30_kills_over_3000_jobs_lose_and_double_nothing(
    fault_round: FaultRound,
) -> None:
    result = kill_at_random(fault_round, kills=30, jobs=3000)

    assert not result.findings, str(result.findings)


@pytest.mark.sqlite
def test_kills_lose_and_double_nothing_on_sqlite(fault_round: FaultRound) -> None:
    result = kill_at_random(fault_round, kills=6, jobs=300)

    assert not result.findings, str(result.findings)
