"""What the tests of the testing kit have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_charges() -> Iterator[None]:
    """Begin with nothing charged."""
    from tests.testapp import rehearsed

    rehearsed.charges.clear()
    yield
    rehearsed.charges.clear()
