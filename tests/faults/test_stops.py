"""Processes that stand still for two TTLs and go on: nothing late is accepted."""

from __future__ import annotations

import pytest

from .scene import Scene
from .stops import stop_groups, stop_unnoticed

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


@pytest.mark.postgresql
def test_what_stopped_groups_write_late_is_refused(scene: Scene) -> None:
    tally = stop_groups(scene, stops=5)

    assert not tally.findings, str(tally.findings)
    # Else nothing was tried.
    assert tally.refused > 5


def test_stopped_child_keeps_its_jobs_and_runs_them_once(scene: Scene) -> None:
    tally = stop_unnoticed(scene, stops=2)

    assert not tally.findings, str(tally.findings)


@pytest.mark.sqlite
def test_stopped_group_keeps_its_jobs_on_sqlite(scene: Scene) -> None:
    tally = stop_unnoticed(scene, stops=1, groups=True)

    assert not tally.findings, str(tally.findings)
