"""Sessions ended from outside: those of the given numbers, if they are ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from django.db import connection

from django_jobqueue.storage.backends import end_backends
from django_jobqueue.storage.database import Database

if TYPE_CHECKING:
    import psycopg

PLAIN = Database(alias="default")


class Sessions:
    """Opens sessions beside Django's own."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def open(self, **changes: Any) -> psycopg.Connection[Any]:
        import psycopg

        params = connection.get_connection_params()
        params.pop("cursor_factory")
        params.pop("context")
        session = psycopg.connect(**{**params, **changes}, autocommit=True)
        self._stack.callback(session.close)
        return session


@pytest.fixture
def sessions(transactional_db: None) -> Iterator[Sessions]:
    with ExitStack() as stack:
        yield Sessions(stack)


def is_alive(session: psycopg.Connection[Any]) -> bool:
    import psycopg

    try:
        session.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.postgresql
def test_the_given_sessions_are_ended_and_no_other(sessions: Sessions) -> None:
    first, second, other = [sessions.open() for _ in range(3)]

    end_backends(PLAIN, [first.info.backend_pid, second.info.backend_pid])

    assert [is_alive(s) for s in (first, second, other)] == [False, False, True]


@pytest.mark.postgresql
def test_the_session_that_asks_is_spared(sessions: Sessions) -> None:
    asking = sessions.open()

    end_backends(Database(alias="default", own=asking), [asking.info.backend_pid])

    assert is_alive(asking)


@pytest.mark.postgresql
def test_sessions_of_another_database_are_spared(sessions: Sessions) -> None:
    elsewhere = sessions.open(dbname="postgres")

    end_backends(PLAIN, [elsewhere.info.backend_pid])

    assert is_alive(elsewhere)


@pytest.mark.postgresql
def test_sessions_of_another_role_are_spared(sessions: Sessions) -> None:
    somebody = f"somebody_{uuid4().hex[:8]}"
    admin = sessions.open()
    admin.execute(f"CREATE ROLE {somebody} LOGIN PASSWORD 'x'")
    try:
        session = sessions.open(user=somebody, password="x")
        end_backends(PLAIN, [session.info.backend_pid])
        assert is_alive(session)
    finally:
        admin.execute(f"DROP ROLE {somebody}")


@pytest.mark.postgresql
def test_a_session_younger_than_the_number_is_somebody_elses(
    sessions: Sessions,
) -> None:
    session = sessions.open()

    end_backends(PLAIN, [session.info.backend_pid], age=60.0)
    assert is_alive(session)
    end_backends(PLAIN, [session.info.backend_pid], age=0.0)
    assert not is_alive(session)


def test_numbers_of_sessions_mean_nothing_where_there_are_none(
    database: Database,
) -> None:
    # A number that no process has.
    end_backends(database, [2**31 - 1])
    end_backends(database, [])
