"""W004 to W008: databases, pools and routers."""

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.checks.registry import registry as check_registry
from django.db import connections, router
from django.test import override_settings

from django_jobqueue.checks import (
    check_database,
    check_journal,
    check_pool,
    check_routers,
    databases,
)
from django_jobqueue.worker.running.connections import find_pool_size
from tests.checks.messages import as_tuples


class _Elsewhere:
    """A router that sends our models to another database."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "business" if model._meta.app_label == "jobqueue" else None


class _Splitting:
    """A router that keeps some of our tables out of the jobs' database."""

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        if app_label != "jobqueue" or model_name not in {"deadjob", "attempt"}:
            return None
        return db == "business"


class _Silent:
    """A router without an opinion on writes."""


def test_pool_smaller_than_concurrency_is_w004(monkeypatch: pytest.MonkeyPatch) -> None:
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "pool", {"min_size": 1, "max_size": 3})
    assert as_tuples(check_pool()) == [
        (
            "jobqueue.W004",
            "The pool of the database 'default' has 3 connections, and a worker runs "
            "10 jobs at a time.",
            "runworker will lower its concurrency to 3. Raise "
            "OPTIONS['pool']['max_size'], or lower JOBQUEUE['CONCURRENCY'].",
        )
    ]
    with override_settings(JOBQUEUE={"CONCURRENCY": 3}):
        assert check_pool() == []


@pytest.mark.parametrize(
    ("pool", "size"),
    [
        ({}, None),
        (False, None),
        (True, 4),
        ({"min_size": 2}, 2),
        ({"min_size": 2, "max_size": None}, 2),
        ({"max_size": 8}, 8),
    ],
)
def test_size_of_a_pool_is_that_of_psycopg(
    pool: Any, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = connections["default"].settings_dict["OPTIONS"]
    monkeypatch.setitem(options, "pool", pool)
    assert find_pool_size("default") == size


def replace_vendor(
    monkeypatch: pytest.MonkeyPatch, vendor: str, *, can_skip: bool
) -> None:
    """Replace `default` with a database of another kind."""
    features = SimpleNamespace(has_select_for_update_skip_locked=can_skip)
    database = SimpleNamespace(vendor=vendor, display_name="MySQL", features=features)
    monkeypatch.setattr(databases, "connections", {"default": database})


def test_database_without_skip_locked_is_e005(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_vendor(monkeypatch, "mysql", can_skip=False)
    [(code, message, hint)] = as_tuples(check_database(databases=["default"]))
    assert code == "jobqueue.E005"
    assert message.startswith("The database 'default' (MySQL) has no SELECT … FOR")
    assert "JOBQUEUE['DATABASE'] names the alias" in str(hint)


@pytest.mark.parametrize(
    ("vendor", "can_skip", "checked"),
    [
        ("mysql", True, ["default"]),
        ("sqlite", False, ["default"]),
        ("mysql", False, ["business"]),
        ("mysql", False, None),
    ],
    ids=["has it", "needs none", "of another database", "without databases="],
)
def test_skip_locked_is_required_of_the_checked_database_only(
    vendor: str,
    can_skip: bool,
    checked: list[str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace_vendor(monkeypatch, vendor, can_skip=can_skip)
    assert check_database(databases=checked) == []


@pytest.mark.django_db
def test_the_test_database_passes_the_check_that_connects() -> None:
    found = run_checks(tags=["database"], databases=["default"])
    assert [message for message in found if str(message.id).startswith("jobq")] == []


def make_sqlite(
    monkeypatch: pytest.MonkeyPatch, path: Path | str, **options: str
) -> None:
    """Replace `default` with an SQLite file."""
    database = SimpleNamespace(
        vendor="sqlite", settings_dict={"NAME": path, "OPTIONS": options}
    )
    monkeypatch.setattr(databases, "connections", {"default": database})


def make_file(path: Path, journal: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode={journal}")
        connection.execute("CREATE TABLE one (id)")
    return path


@pytest.mark.parametrize("journal", ["delete", None])
def test_sqlite_without_wal_is_w006(
    journal: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "db.sqlite3"
    if journal is not None:
        make_file(path, journal)
    make_sqlite(monkeypatch, path, init_command="PRAGMA synchronous=NORMAL")
    [(code, message, hint)] = as_tuples(check_journal())
    assert code == "jobqueue.W006"
    assert message.startswith("The SQLite database 'default' has no write-ahead log")
    assert "PRAGMA journal_mode=WAL" in str(hint)


def test_sqlite_with_wal_passes_wherever_it_was_enabled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = tmp_path / "none.sqlite3"
    make_sqlite(monkeypatch, missing, init_command="pragma journal_mode = 'wal';")
    assert check_journal() == []
    make_sqlite(monkeypatch, make_file(tmp_path / "db.sqlite3", "wal"))
    assert check_journal() == []
    make_sqlite(monkeypatch, ":memory:")
    assert check_journal() == []


def test_journal_is_checked_with_deploy_only() -> None:
    def is_registered(**flags: bool) -> bool:
        return check_journal in check_registry.get_checks(**flags)

    assert is_registered(include_deployment_checks=True)
    assert not is_registered(include_deployment_checks=False)


def route(monkeypatch: pytest.MonkeyPatch, *routers: Any) -> None:
    monkeypatch.setattr(router, "routers", list(routers))


def test_router_that_splits_our_tables_is_e007(monkeypatch: pytest.MonkeyPatch) -> None:
    route(monkeypatch, _Splitting())
    assert as_tuples(check_routers()) == [
        (
            "jobqueue.E007",
            "DATABASE_ROUTERS keep tables of django_jobqueue out of the database "
            "'default': Attempt, DeadJob.",
            "Let allow_migrate('default', 'jobqueue') return True or None: all tables "
            "must be where JOBQUEUE['DATABASE'] says.",
        )
    ]


def test_router_that_points_elsewhere_is_w008(monkeypatch: pytest.MonkeyPatch) -> None:
    route(monkeypatch, _Silent(), _Elsewhere())
    [(code, message, hint)] = as_tuples(check_routers())
    assert code == "jobqueue.W008"
    assert message.startswith(
        "The router _Elsewhere sends writes elsewhere than JOBQUEUE['DATABASE'], "
        "which is 'default': "
    )
    assert "Job to 'business'" in message
    assert "return 'default' or None" in str(hint)


def test_router_that_points_to_the_jobs_database_is_fine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    route(monkeypatch, _Elsewhere())
    with override_settings(JOBQUEUE={"DATABASE": "business"}):
        assert check_routers() == []


@pytest.mark.parametrize("check", [check_pool, check_journal, check_routers])
def test_unknown_database_is_reported_once(check: Any) -> None:
    with override_settings(JOBQUEUE={"DATABASE": "jobs"}):
        assert check() == []
