"""Hostile handlers: other jobs run, and the worker is unchanged."""

from __future__ import annotations

from django.db import connection

from .case_fixtures import MARKS, Results, check, make_results_fixture, parametrize
from .handlers import list_cases

pytestmark = MARKS
CASES = list_cases(is_server=connection.vendor == "postgresql")
results = make_results_fixture(CASES)


@parametrize(CASES)
def test_hostile_handler_harms_no_other_job(results: Results, name: str) -> None:
    check(results, name)
