"""Watcher: sees that SQLite's files have changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connections

from django_jobqueue.storage.database import Database
from django_jobqueue.worker.claiming.file_watcher import (
    CHANGED_FILE_PAUSE_SECONDS,
    FILE_CHECK_SECONDS,
    FileWatcher,
    find_files,
)

DB = Database(alias="default")


def test_a_change_of_either_file_is_changes_once(tmp_path: Path) -> None:
    database, log = tmp_path / "jobs.sqlite3", tmp_path / "jobs.sqlite3-wal"
    database.write_bytes(b"1")
    changes: list[str] = []
    watcher = FileWatcher(
        [database, log], on_change=lambda: changes.append("!"), alias="default"
    )

    assert watcher.step(DB) == FILE_CHECK_SECONDS
    assert changes == []

    log.write_bytes(b"12")
    assert watcher.step(DB) == CHANGED_FILE_PAUSE_SECONDS
    assert watcher.step(DB) == FILE_CHECK_SECONDS
    assert changes == ["!"]

    database.write_bytes(b"123")
    assert watcher.step(DB) == CHANGED_FILE_PAUSE_SECONDS
    assert changes == ["!", "!"]

    log.unlink()
    assert watcher.step(DB) == CHANGED_FILE_PAUSE_SECONDS


def test_only_databases_in_a_file_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = connections["default"].settings_dict
    vendor = connections["default"].vendor
    path = tmp_path / "jobs.sqlite3"

    monkeypatch.setitem(settings, "NAME", path)
    expected = [path, Path(f"{path}-wal")] if vendor == "sqlite" else []
    assert find_files("default") == expected

    for name in (":memory:", "file:jobs?mode=memory&cache=shared"):
        monkeypatch.setitem(settings, "NAME", name)
        assert find_files("default") == []
