"""Cold start: what is looked at before a worker begins to run jobs.

Called by `runworker`. A database that is away is waited for; tables that are missing
are said in one clear line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from ..outcomes import is_database_trouble

if TYPE_CHECKING:
    from .supervisor import Supervisor
    from .worker import Worker

BUSY_WAIT = 1.0
LONGEST_WAIT = 10.0


def wait_for_database(
    worker: Worker | Supervisor, alias: str, *, tell: Callable[[str], None]
) -> None:
    """Come back when the tables are there; wait while the database is away."""
    pause = BUSY_WAIT
    while not worker.is_asked_to_stop():
        look = _Look(alias)
        look.start()
        while look.is_alive():
            look.join(0.05)
            if worker.is_asked_to_stop():
                return
        if look.missing:
            raise CommandError(
                f"The database {alias!r} lacks migrations of django_jobqueue "
                f"({', '.join(look.missing)}). "
                f"Run: manage.py migrate --database {alias}"
            )
        if look.error is None:
            return
        if not is_database_trouble(look.error):
            raise look.error
        reason = " ".join(str(look.error).split())[:200]
        tell(
            f"The database {alias!r} cannot be reached, trying again in "
            f"{pause:g} s: {reason}"
        )
        _sleep(pause, worker)
        pause = min(2 * pause, LONGEST_WAIT)


def _sleep(seconds: float, worker: Worker | Supervisor) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not worker.is_asked_to_stop(0.1):
        pass


class _Look(threading.Thread):
    """Reads which migrations are missing.

    A thread: a database that does not answer at all would keep the main one, and every
    signal with it, for minutes.
    """

    def __init__(self, alias: str) -> None:
        super().__init__(name="jobqueue-look", daemon=True)
        self.missing: list[str] = []
        self.error: Exception | None = None
        self._alias = alias

    def run(self) -> None:
        try:
            self.missing = _find_missing_migrations(self._alias)
        # Raised again where somebody waits for it.
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
    """Leave nothing open: a supervisor has no use for Django's connections."""
    wrapper: Any
    for wrapper in connections.all(initialized_only=True):
        wrapper.close()
        if wrapper.settings_dict["OPTIONS"].get("pool"):
            wrapper.close_pool()
