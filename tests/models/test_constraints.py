"""The database refuses values that a worker could not load or rely on."""

from __future__ import annotations

import pytest
from django.db import DatabaseError, connection, transaction

from django_jobqueue import Job
from tests.factories import make_job

pytestmark = pytest.mark.django_db

VALUES = [
    ("lease_token", str((1 << 63) - 1)),
    ("attempts", "2147483647, lease_token = 2147483647"),
    ("crashes", "2147483647"),
    ("lost", "2147483647"),
    ("given_back", "2147483647"),
    ("run_at", "'infinity'"),
    ("expires_at", "'infinity'"),
    pytest.param("run_at", "'-infinity'", marks=pytest.mark.postgresql),
    pytest.param("expires_at", "'12000-01-01'", marks=pytest.mark.postgresql),
    pytest.param("lease_token", "'abc'", marks=pytest.mark.sqlite),
    pytest.param("attempts", "'abc'", marks=pytest.mark.sqlite),
    pytest.param("run_at", "'junk'", marks=pytest.mark.sqlite),
    pytest.param("payload", "'{'", marks=pytest.mark.sqlite),
]


@pytest.mark.parametrize(("column", "value"), VALUES)
def test_the_database_refuses_an_unusable_value(column: str, value: str) -> None:
    make_job()
    with (
        pytest.raises(DatabaseError),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"UPDATE jobqueue_job SET {column} = {value}")
    assert Job.objects.get().lease_token == 0
