"""Hostile rows: each column × extreme values, in every status."""

from __future__ import annotations

from .case_fixtures import MARKS, Results, check, make_results_fixture, parametrize
from .rows import VARIABLES, list_cases

pytestmark = MARKS
CASES = list_cases()
results = make_results_fixture(CASES, **VARIABLES)


@parametrize(CASES)
def test_hostile_rows_harm_no_other_job(results: Results, name: str) -> None:
    check(results, name)
