"""FileWatcher: sees that SQLite's files have changed, and wakes the claim loop.

It is to SQLite what the listener is to PostgreSQL: it only speeds things up. A commit
grows or touches the database or its write-ahead log, and a stat() of both costs a few
microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from django.db import connections

from ...storage.database import Database
from ..loop import Loop

FILE_CHECK_SECONDS = 0.025
# After a change: others may write all the time, and jobs write themselves.
CHANGED_FILE_PAUSE_SECONDS = 0.1


def find_files(alias: str) -> list[Path]:
    """Return the files of a SQLite database; none if it is in memory."""
    connection = connections[alias]
    name = str(connection.settings_dict["NAME"])
    # A file: URI may contain anything; a database in memory has no second process.
    if connection.vendor != "sqlite" or name.startswith((":memory:", "file:")):
        return []
    return [Path(name), Path(f"{name}-wal")]


class FileWatcher:
    """The loop that checks the files of the database."""

    def __init__(
        self, paths: Sequence[Path], *, on_change: Callable[[], None], alias: str
    ) -> None:
        self.loop = Loop("watch", self.step, alias=alias)
        self._paths = paths
        self._on_change = on_change
        self._seen = self._read_stamps()

    def step(self, db: Database) -> float:
        stamps = self._read_stamps()
        if stamps == self._seen:
            return FILE_CHECK_SECONDS
        self._seen = stamps
        self._on_change()
        return CHANGED_FILE_PAUSE_SECONDS

    def _read_stamps(self) -> list[tuple[int, int] | None]:
        return [_read_stamp(path) for path in self._paths]


def _read_stamp(path: Path) -> tuple[int, int] | None:
    """Return the modification time and size; None if there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
