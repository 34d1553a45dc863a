"""Processes that are stopped for two TTLs and resumed: no late write is accepted."""

from __future__ import annotations

import pytest

from .fault_round import FaultRound
from .stops import stop_groups, stop_without_rescue

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


@pytest.mark.postgresql
def test_late_writes_of_stopped_groups_are_refused(fault_round: FaultRound) -> None:
    result = stop_groups(fault_round, stops=5)

    assert not result.findings, str(result.findings)
    # Otherwise no late write was attempted.
    assert result.refused > 5


def test_stopped_child_keeps_its_jobs_and_runs_them_once(
    fault_round: FaultRound,
) -> None:
    result = stop_without_rescue(fault_round, stops=2)

    assert not result.findings, str(result.findings)


@pytest.mark.sqlite
def test_stopped_group_keeps_its_jobs_on_sqlite(fault_round: FaultRound) -> None:
    result = stop_without_rescue(fault_round, stops=1, groups=True)

    assert not result.findings, str(result.findings)
