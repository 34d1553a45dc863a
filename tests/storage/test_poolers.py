"""What a worker's own connection is like behind PgBouncer, and without it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator

import pytest
from django.db import connection

from django_jobqueue.storage import poolers
from django_jobqueue.storage.backends import end_backends
from django_jobqueue.storage.database import Database
from django_jobqueue.worker.running.connections import close_database, open_database
from django_jobqueue.worker.running.query_cancel import find_backends
from tests.pgbouncer import PgBouncer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

SETTINGS = """
    SELECT
        current_setting('statement_timeout'),
        current_setting('lock_timeout'),
        current_setting('transaction_isolation'),
        current_setting('enable_seqscan'),
        %(name)s
"""


@pytest.fixture
def forgetful() -> Iterator[None]:
    poolers._answers.clear()
    yield
    poolers._answers.clear()


@pytest.fixture
def pooler(request: pytest.FixtureRequest, forgetful: None) -> Iterator[PgBouncer]:
    """A pooler of one session in transaction mode, through which workers connect."""
    mode, size = getattr(request, "param", ("transaction", 1))
    with (
        PgBouncer(os.environ["DATABASE_URL"], mode=mode, size=size) as pooler,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        monkeypatch.setitem(connection.settings_dict, "PORT", str(pooler.port))
        yield pooler


@pytest.fixture
def own(pooler: PgBouncer) -> Iterator[Database]:
    db = open_database("default", name="test")
    yield db
    close_database(db)


@pytest.mark.pgbouncer
@pytest.mark.once
def test_settings_hold_in_each_statement_and_do_not_stay(own: Database) -> None:
    wanted = ("5s", "1s", "read committed", "off", "50%")
    assert own.local
    assert own.execute(SETTINGS, {"name": "50%"}) == [wanted]
    with own.transaction():
        own.execute("SELECT set_config('lock_timeout', '50ms', true)", {})
        assert own.execute(SETTINGS, {"name": ""})[0][:2] == ("5s", "50ms")
    assert own.own is not None
    left = own.own.execute(SETTINGS.replace("%(name)s", "''")).fetchone()
    assert left is not None
    assert left[:2] + left[3:4] == ("0", "0", "on")


@pytest.mark.pgbouncer
@pytest.mark.once
def test_isolation_is_read_committed_whatever_the_role_says(own: Database) -> None:
    assert own.own is not None
    own.own.execute(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE"
    )
    assert own.execute(SETTINGS, {"name": ""})[0][2] == "read committed"
    with own.transaction():
        assert own.execute(SETTINGS, {"name": ""})[0][2] == "read committed"


@pytest.mark.pgbouncer
@pytest.mark.once
@pytest.mark.parametrize("pooler", [("session", 5)], indirect=True)
def test_a_pooler_in_session_mode_keeps_the_session(own: Database) -> None:
    assert own.local == ""
    assert own.execute(SETTINGS, {"name": ""})[0][0] == "5s"


@pytest.mark.pgbouncer
@pytest.mark.once
@pytest.mark.parametrize("pooler", [("session", 1)], indirect=True)
def test_a_pool_without_a_second_session_counts_as_transaction_mode(
    own: Database,
) -> None:
    assert own.local


@pytest.mark.pgbouncer
@pytest.mark.once
def test_a_pooler_that_changes_to_transaction_mode_gets_no_settings(
    pooler: PgBouncer,
) -> None:
    known = poolers._Answer(time.monotonic(), is_lasting=True, has_false_pid=True)
    poolers._answers["default"] = known
    db = open_database("default", name="test")
    try:
        assert db.local
    finally:
        close_database(db)


@pytest.mark.pgbouncer
@pytest.mark.once
def test_no_process_id_of_a_pooler_is_given_to_the_supervisor(own: Database) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    assert find_backends([connection]) == ()


def test_without_a_pooler_the_session_is_kept(
    forgetful: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)
    db = open_database("default", name="test")
    try:
        assert db.local == ""
        assert db.execute(SETTINGS, {"name": ""})[0][0] == "5s"
        assert not poolers.has_false_pids("default")
    finally:
        close_database(db)


@pytest.fixture
def role(transactional_db: None) -> Iterator[str]:
    from psycopg import sql

    name = f'Job\'s "role" % {secrets.token_hex(4)}'
    quoted = sql.Identifier(name).as_string()
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {quoted}")
    options = {**connection.settings_dict["OPTIONS"], "assume_role": name}
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
        yield name
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute(f"DROP ROLE {quoted}")


def test_assumed_role_is_that_of_the_workers_own_connections(role: str) -> None:
    db = open_database("default", name="test")
    try:
        assert db.execute(READ_ROLE, {}) == [(role,)]
        end_backends(db, [1])
        assert db.execute(READ_ROLE, {}) == [(role,)]
    finally:
        close_database(db)


@pytest.mark.pgbouncer
@pytest.mark.once
def test_assumed_role_is_that_of_each_transaction_behind_a_pooler(
    role: str, own: Database
) -> None:
    assert own.execute(READ_ROLE, {}) == [(role,)]
    assert own.own is not None
    assert own.own.execute(READ_ROLE).fetchall() == [("postgres",)]
    end_backends(own, [1])


READ_ROLE = """
    SELECT current_user::text
"""
