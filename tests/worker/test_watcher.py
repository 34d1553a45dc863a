"""Watcher: sees that SQLite's files have changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connections

from django_jobqueue.lifecycle.database import Database
from django_jobqueue.worker.watcher import LOOK, REST, Watcher, find_files

DB = Database(alias="default")


def test_a_change_of_either_file_is_told_once(tmp_path: Path) -> None:
    database, log = tmp_path / "jobs.sqlite3", tmp_path / "jobs.sqlite3-wal"
    database.write_bytes(b"1")
    told: list[str] = []
    watcher = Watcher(
        [database, log], on_change=lambda: told.append("!"), alias="default"
    )

    assert watcher.step(DB) == LOOK
    assert told == []

    log.write_bytes(b"12")
    assert watcher.step(DB) == REST
    assert watcher.step(DB) == LOOK
    assert told == ["!"]

    database.write_bytes(b"123")
    assert watcher.step(DB) == REST
    assert told == ["!", "!"]

    log.unlink()
    assert watcher.step(DB) == REST


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
