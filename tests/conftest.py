"""The database of the tests, and the environment of worker processes that use it.

`pytest` alone is enough: without DATABASE_URL a temporary PostgreSQL server is started
before Django reads its settings, and stopped at the end. With
JOBQUEUE_TEST_DATABASE=sqlite the same tests run on SQLite files in a temporary folder.
"""

import os
import secrets
import signal
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack

import django
import pytest
from django.conf import settings

from tests.pgbouncer import find_pgbouncer
from tests.postgres import database_url
from tests.processes import make_worker_env

DATABASE = os.environ.setdefault("JOBQUEUE_TEST_DATABASE", "postgresql")
NOT_RUN = pytest.StashKey[str]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if settings.configured:
        raise pytest.UsageError(
            "Django's settings were read before the tests have a database. "
            "Unset DJANGO_SETTINGS_MODULE and leave out --ds."
        )
    _restore_interrupt()
    resources = ExitStack()
    config.add_cleanup(resources.close)
    os.environ["JOBQUEUE_TEST_RUN"] = secrets.token_hex(4)
    if DATABASE == "sqlite":
        directory = tempfile.TemporaryDirectory(
            prefix="jobqueue-test-", ignore_cleanup_errors=True
        )
        os.environ["JOBQUEUE_TEST_DIRECTORY"] = resources.enter_context(directory)
    else:
        try:
            os.environ["DATABASE_URL"] = resources.enter_context(database_url())
        except RuntimeError as error:
            raise pytest.UsageError(str(error)) from None
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    # pytest-django's own hook comes last, and sets Django up if settings were read.
    assert settings.DATABASES


def pytest_report_header() -> str:
    return f"database: {_database_version()}, Django {django.get_version()}"


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Deselect tests of the other database, and those of `make test-browser`."""
    chosen = [item for item in items if _is_for_this_run(item)]
    if not _has_pgbouncer(config, chosen):
        chosen = [item for item in chosen if not item.get_closest_marker("pgbouncer")]
    if len(chosen) < len(items):
        left_out = set(items) - set(chosen)
        items[:] = chosen
        config.hook.pytest_deselected(items=list(left_out))


def _has_pgbouncer(config: pytest.Config, items: list[pytest.Item]) -> bool:
    """Install PgBouncer if a test needs it; on failure the summary says so."""
    count = sum(item.get_closest_marker("pgbouncer") is not None for item in items)
    if not count or config.option.collectonly:
        return True
    try:
        find_pgbouncer()
    except RuntimeError as error:
        config.stash[NOT_RUN] = f"{count} tests not run: {error}"
        return False
    return True


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if text := config.stash.get(NOT_RUN, ""):
        terminalreporter.write_line(text)


def _is_for_this_run(item: pytest.Item) -> bool:
    marks = {mark.name for mark in item.iter_markers()}
    if "browser" in marks and "JOBQUEUE_TEST_BROWSER" not in os.environ:
        return False
    wanted = marks & {"postgresql", "sqlite"}
    return not wanted or DATABASE in wanted


@pytest.fixture(autouse=True)
def fresh_options(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clear the cached options: no test reads those of another environment."""
    from django_jobqueue.options import get_options

    # Set by a runworker that runs in this process.
    monkeypatch.delenv("JOBQUEUE_DATABASE", raising=False)
    get_options.cache_clear()
    yield
    get_options.cache_clear()


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove from the registry, after the test, the handlers it registered."""
    from django_jobqueue import registry

    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(registry, "duplicates", [])


@pytest.fixture(scope="session")
def worker_env(django_db_setup: None) -> dict[str, str]:
    """Return the environment in which a worker process uses the test databases.

    Such a process sees committed rows only: the test needs `transaction=True`, and
    `databases=[…]` if it uses another alias than `default`.
    """
    return make_worker_env()


def _restore_interrupt() -> None:
    # A shell starts background commands with SIGINT ignored. Workers inherit that, and
    # tests interrupt them.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _database_version() -> str:
    if DATABASE == "sqlite":
        return f"SQLite {sqlite3.sqlite_version}"
    import psycopg

    database = settings.DATABASES["default"]
    try:
        with psycopg.connect(
            host=database["HOST"],
            port=database["PORT"],
            user=database["USER"],
            password=database["PASSWORD"],
            dbname="postgres",
        ) as connection:
            version = connection.info.parameter_status("server_version")
    except psycopg.OperationalError as error:
        return f"PostgreSQL, out of reach ({error})"
    return f"PostgreSQL {version}"
