"""A connection that cannot be closed affects only the job that broke it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from django_jobqueue.worker.running import job_connections as module


class BrokenWrapper:
    """What a job may leave in the place of a connection."""

    alias = "default"
    vendor = "sqlite"
    connection = object()
    in_atomic_block = False
    close_at = 0.0
    queries_log: deque[Any] = deque()  # noqa: RUF012
    settings_dict: dict[str, Any] = {"CONN_MAX_AGE": 0, "OPTIONS": {}}  # noqa: RUF012
    _jobqueue_opened = (connection, 0.0)

    def get_autocommit(self) -> bool:
        return True

    def close(self) -> None:
        raise RuntimeError("close")

    close_if_unusable_or_obsolete = close


@pytest.mark.parametrize(
    "tidy",
    [
        module.close_idle_connections,
        module.reset_connections,
        lambda: module.reset_connections(is_suspect=True),
    ],
    ids=["idle", "after a job", "after an interruption"],
)
def test_connection_that_cannot_be_closed_is_dropped(
    tidy: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    broken: Any = BrokenWrapper()

    def run() -> list[Any]:
        connections["default"] = broken
        module._upkeep.has_connections = True
        module._upkeep.wrappers.append(broken)
        tidy()
        assert module.list_connections() == []
        return list(connections.all(initialized_only=True))

    with ThreadPoolExecutor(1) as executor, caplog.at_level(logging.WARNING):
        assert broken not in executor.submit(run).result()
    assert caplog.text.count("a broken connection is dropped") == 1


@pytest.mark.django_db(transaction=True)
def test_connection_that_a_job_has_closed_below_django_is_replaced() -> None:
    def run() -> list[Any]:
        connection = connections["default"]
        connection.ensure_connection()
        # No error has occurred on it: Django takes it to be usable.
        connection.connection.close()
        module.reset_connections()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                return list(cursor.fetchall())
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(run).result() == [(1,)]
