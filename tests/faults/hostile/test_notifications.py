"""Malformed notifications wake a worker at most."""

from __future__ import annotations

import random

import pytest

from .case_fixtures import MARKS, Results, check, make_results_fixture, parametrize
from .notifications import list_cases

pytestmark = [*MARKS, pytest.mark.postgresql]
CASES = list_cases(random.Random(11))
results = make_results_fixture(CASES)


@parametrize(CASES)
def test_malformed_notifications_harm_no_job(results: Results, name: str) -> None:
    check(results, name)
