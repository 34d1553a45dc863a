"""Checks of the database before a worker starts."""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError

from django_jobqueue.models import Job
from django_jobqueue.options import get_options
from django_jobqueue.worker.startup.cold_start import wait_for_database
from django_jobqueue.worker.worker import Worker

pytestmark = pytest.mark.django_db(transaction=True)


def test_missing_tables_are_named_although_no_migration_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Migrations were faked, or MIGRATION_MODULES leaves ours out."""
    worker = Worker(get_options())
    wait_for_database(worker, "default", report=print)
    monkeypatch.setattr(Job._meta, "db_table", "jobqueue_no_such_table")
    with pytest.raises(CommandError, match=r"manage\.py migrate --database default"):
        wait_for_database(worker, "default", report=print)
