"""Fixtures of the admin's tests; models are imported once Django is set up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from django.test import Client

    from tests.admin.rows import Rows


@pytest.fixture
def rows(db: None) -> Rows:
    """One row of each model, and a job in each state that matters."""
    from tests.admin.rows import make_rows

    return make_rows()


@pytest.fixture
def clients(db: None, django_user_model: Any) -> dict[str, Client]:
    """Return a client for each kind of user."""
    from tests.admin.rows import make_clients

    return make_clients(django_user_model.objects)


@pytest.fixture
def client(clients: dict[str, Client]) -> Client:
    """The superuser's."""
    return clients["superuser"]
