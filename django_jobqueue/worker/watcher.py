"""Watcher: sees that SQLite's files have changed, and wakes the claim loop.

What the listener is on PostgreSQL: it only speeds things up. A commit grows or touches
the database or its write-ahead log, and a look at both costs a few microseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from django.db import connections

from ..lifecycle.database import Database
from .loop import Loop

# Seconds between two looks at the files.
LOOK = 0.025
# After a change: others may be writing all the time, and jobs write themselves.
REST = 0.1


def find_files(alias: str) -> list[Path]:
    """Return the files of a SQLite database; none of one that lives in memory."""
    connection = connections[alias]
    name = str(connection.settings_dict["NAME"])
    # An address with file: may say anything; one in memory has no second process.
    if connection.vendor != "sqlite" or name.startswith((":memory:", "file:")):
        return []
    return [Path(name), Path(f"{name}-wal")]


class Watcher:
    """The loop that looks at the files of the database."""

    def __init__(
        self, paths: Sequence[Path], *, on_change: Callable[[], None], alias: str
    ) -> None:
        self.loop = Loop("watch", self.step, alias=alias)
        self._paths = paths
        self._on_change = on_change
        self._seen = self._read_marks()

    def step(self, db: Database) -> float:
        marks = self._read_marks()
        if marks == self._seen:
            return LOOK
        self._seen = marks
        self._on_change()
        return REST

    def _read_marks(self) -> list[tuple[int, int] | None]:
        return [_read_mark(path) for path in self._paths]


def _read_mark(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
