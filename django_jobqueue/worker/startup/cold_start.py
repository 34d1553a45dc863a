"""Checks of the database before a worker begins to run jobs.

Called by `runworker`. It waits for a database that is away. Missing tables end the
command with one clear line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from ...backoff import growing_pauses
from ...database_errors import is_database_trouble
from ...models import Job

if TYPE_CHECKING:
    from ..main_thread import MainThread

# Between two checks of a database that is away.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 10.0


def wait_for_database(
    worker: MainThread, alias: str, *, report: Callable[[str], None]
) -> None:
    """Return when the tables exist; wait while the database is away.

    Raises CommandError if tables or migrations are missing.
    """
    for pause in growing_pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
        if worker.is_asked_to_stop():
            return
        check = _DatabaseCheck(alias)
        check.start()
        while check.is_alive():
            check.join(0.05)
            if worker.is_asked_to_stop():
                return
        error = _read_result(check, alias)
        if error is None:
            return
        reason = " ".join(str(error).split())[:200]
        report(
            f"The database {alias!r} cannot be reached, trying again in "
            f"{pause:g} s: {reason}"
        )
        _sleep(pause, worker)


def _read_result(check: _DatabaseCheck, alias: str) -> Exception | None:
    """Return why the database cannot be reached, None if all tables exist."""
    if check.missing:
        raise CommandError(
            f"The database {alias!r} lacks migrations of django_jobqueue "
            f"({', '.join(check.missing)}). "
            f"Run: manage.py migrate --database {alias}"
        )
    if check.lacks_tables:
        raise CommandError(
            f"The database {alias!r} lacks the tables of django_jobqueue, although "
            f"no migration is missing. Run: manage.py migrate --database {alias}"
        )
    if check.error is not None and not is_database_trouble(check.error):
        raise check.error
    return check.error


def _sleep(seconds: float, worker: MainThread) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not worker.is_asked_to_stop(0.1):
        pass


class _DatabaseCheck(threading.Thread):
    """Reads which migrations are missing.

    A thread: a database that does not answer at all would block the main thread, and
    with it every signal, for minutes.
    """

    def __init__(self, alias: str) -> None:
        super().__init__(name="jobqueue-check", daemon=True)
        self.missing: list[str] = []
        self.lacks_tables = False
        self.error: Exception | None = None
        self._alias = alias

    def run(self) -> None:
        try:
            self.missing = _find_missing_migrations(self._alias)
            # Migrations that were faked, or MIGRATION_MODULES without ours.
            tables = connections[self._alias].introspection.table_names(
                include_views=True
            )
            self.lacks_tables = Job._meta.db_table not in tables
        # Raised again in wait_for_database().
        except Exception as error:
            self.error = error
        finally:
            _close_connections()


def _find_missing_migrations(alias: str) -> list[str]:
    loader = MigrationLoader(connections[alias])
    ours = {name for app, name in loader.disk_migrations if app == "jobqueue"}
    done = {name for app, name in loader.applied_migrations if app == "jobqueue"}
    return sorted(ours - done)


def _close_connections() -> None:
    """Leave nothing open: a supervisor does not use Django's connections."""
    wrapper: Any
    for wrapper in connections.all(initialized_only=True):
        wrapper.close()
        if wrapper.settings_dict["OPTIONS"].get("pool"):
            wrapper.close_pool()
