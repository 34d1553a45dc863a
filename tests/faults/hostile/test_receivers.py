"""Hostile receivers of signals: jobs run, and each end is signalled once."""

from __future__ import annotations

from tests.testapp.receivers import VARIABLE

from .case_fixtures import MARKS, Results, check, make_results_fixture, parametrize
from .receivers import list_cases

pytestmark = MARKS
CASES = list_cases()
results = make_results_fixture(CASES, folder_variable=VARIABLE)


@parametrize(CASES)
def test_hostile_receiver_harms_no_job(results: Results, name: str) -> None:
    check(results, name)
