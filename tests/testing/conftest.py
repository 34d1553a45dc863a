"""Fixtures of the tests of the testing kit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_charges() -> Iterator[None]:
    """Start with no charges."""
    from tests.testapp import rehearsed

    rehearsed.charges.clear()
    yield
    rehearsed.charges.clear()


@pytest.fixture(
    params=[
        pytest.param("inside", marks=pytest.mark.django_db),
        pytest.param("outside", marks=pytest.mark.django_db(transaction=True)),
    ]
)
def database(request: pytest.FixtureRequest, db: None) -> None:
    """Run a test inside the transaction of a TestCase, and again without one."""
    from django.db import connection

    assert connection.in_atomic_block == (request.param == "inside")
