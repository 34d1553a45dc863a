"""Which errors of the database are its own trouble, and which the job's fault."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
import pytest
from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
    transaction,
)

from django_jobqueue.database_errors import (
    is_cancelled_sql,
    is_conflict,
    is_database_trouble,
)
from tests.database_errors import LOST, from_driver


@pytest.mark.parametrize("ask", [is_database_trouble, is_conflict, is_cancelled_sql])
def test_only_errors_of_a_driver_are_asked_for_their_state(ask: Any) -> None:
    class Guarded(Exception):
        @property
        def sqlstate(self) -> str:
            sys.exit("none of your business")

        sqlite_errorcode = sqlstate

    assert ask(Guarded()) is False
    assert ask(from_driver(Guarded())) is False


@pytest.mark.parametrize("wrap", [from_driver, lambda error: error])
@pytest.mark.parametrize(
    "error",
    [
        LOST,
        psycopg.OperationalError("the connection is closed"),
        psycopg.errors.AdminShutdown("57P01"),
        psycopg.errors.CrashShutdown("57P02"),
        psycopg.errors.CannotConnectNow("57P03"),
        psycopg.errors.ConnectionFailure("08006"),
        psycopg.errors.SerializationFailure("40001"),
        psycopg.errors.DeadlockDetected("40P01"),
        psycopg.errors.TooManyConnections("53300"),
        psycopg_pool.PoolTimeout("no connection"),
        psycopg_pool.TooManyRequests("too many"),
        psycopg_pool.PoolClosed("closed"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_trouble_of_postgresql_is_recognised(wrap: Any, error: BaseException) -> None:
    assert is_database_trouble(wrap(error))


@pytest.mark.parametrize("wrap", [from_driver, lambda error: error])
@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.UniqueViolation("23505"),
        psycopg.errors.UndefinedColumn("42703"),
        psycopg.errors.NumericValueOutOfRange("22003"),
        psycopg.errors.QueryCanceled("57014"),
        psycopg.errors.InFailedSqlTransaction("25P02"),
        psycopg.errors.LockNotAvailable("55P03"),
        psycopg.errors.DiskFull("53100"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_fault_of_the_job_is_no_trouble(wrap: Any, error: BaseException) -> None:
    assert not is_database_trouble(wrap(error))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("the connection is closed"),
        ConnectionError("the connection is closed"),
        DatabaseError("raised by the handler itself"),
        IntegrityError("no cause"),
        InterfaceError("no cause"),
        transaction.TransactionManagementError("broken block"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_error_that_no_driver_raised_is_no_trouble(error: BaseException) -> None:
    assert not is_database_trouble(error)


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "db.sqlite3", timeout=0)) as opened:
        opened.execute("CREATE TABLE t (id INTEGER UNIQUE)")
        opened.commit()
        yield opened


def run_sqlite(opened: sqlite3.Connection, statement: str) -> BaseException:
    with pytest.raises(sqlite3.Error) as caught:
        opened.execute(statement)
    return caught.value


def test_locked_database_of_sqlite_is_trouble(
    sqlite_file: sqlite3.Connection, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "db.sqlite3")) as other:
        other.execute("BEGIN IMMEDIATE")
        error = run_sqlite(sqlite_file, "INSERT INTO t VALUES (1)")
    assert str(error) == "database is locked"
    assert is_database_trouble(error)
    assert is_database_trouble(from_driver(error))


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1 FROM locked",
        "SELECT is_locked FROM t",
        "INSERT INTO t VALUES (1), (1)",
    ],
)
def test_fault_of_the_job_on_sqlite_is_no_trouble(
    sqlite_file: sqlite3.Connection, statement: str
) -> None:
    error = run_sqlite(sqlite_file, statement)
    assert not is_database_trouble(error)
    assert not is_database_trouble(from_driver(error))


@pytest.mark.django_db
def test_error_of_a_real_statement_is_no_trouble() -> None:
    with (
        pytest.raises(DatabaseError) as caught,
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT no_such_column")
    assert caught.value.__cause__ is not None
    assert not is_database_trouble(caught.value)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_connection_that_postgresql_ended_is_trouble() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    finally:
        other.close()
    with pytest.raises(DatabaseError) as caught, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    connection.close()
    assert is_database_trouble(caught.value)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_server_out_of_reach_is_trouble() -> None:
    unreachable = connection.copy()
    unreachable.settings_dict = {
        **connection.settings_dict,
        "HOST": "127.0.0.1",
        "PORT": "1",
    }
    with pytest.raises(OperationalError) as caught:
        unreachable.ensure_connection()
    assert is_database_trouble(caught.value)
