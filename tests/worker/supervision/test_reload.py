"""Which changes of which files are changes of the code."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from django_jobqueue.worker.supervision.reload import CodeWatcher


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one module that is loaded and one that is not."""
    folder = tmp_path / "project"
    folder.mkdir()
    load(folder / "loaded.py", monkeypatch)
    write(folder / "late.py")
    return folder


def write(path: Path, *, moment: int = 1_000_000_000) -> None:
    path.write_text("")
    os.utime(path, (moment, moment))


def load(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path)
    module = types.ModuleType(f"sources_{path.stem}")
    module.__spec__ = types.SimpleNamespace(  # type: ignore[assignment]
        loader=None, origin=str(path), has_location=True
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_files_as_they_were_are_no_change(project: Path) -> None:
    sources = CodeWatcher()
    assert sources.find_change() is None


@pytest.mark.parametrize("name", ["loaded.py", "late.py"])
def test_a_change_is_found_once(project: Path, name: str) -> None:
    sources = CodeWatcher()
    write(project / name, moment=1_000_000_001)
    assert sources.find_change() == project / name
    assert sources.find_change() is None


def test_a_module_that_comes_or_goes_is_a_change(project: Path) -> None:
    sources = CodeWatcher()
    write(project / "new.py")
    assert sources.find_change() == project / "new.py"
    (project / "new.py").unlink()
    assert sources.find_change() == project / "new.py"


def test_what_is_no_module_is_none(project: Path) -> None:
    sources = CodeWatcher()
    write(project / ".#loaded.py")
    write(project / "notes.txt")
    assert sources.find_change() is None


def test_a_module_of_the_project_that_is_loaded_late_is_no_change(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor itself loads the migrations while it waits for the database."""
    other = tmp_path / "migrations"
    other.mkdir()
    write(other / "beside.py")
    sources = CodeWatcher()
    load(other / "migration.py", monkeypatch)
    assert sources.find_change() is None
    # From now on its folder is known.
    write(other / "beside.py", moment=1_000_000_001)
    assert sources.find_change() == other / "beside.py"
    write(other / "new.py")
    assert sources.find_change() == other / "new.py"


def test_an_installed_module_that_is_loaded_late_is_no_change(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    installed.mkdir()
    sources = CodeWatcher()
    load(installed / "installed.py", monkeypatch)
    assert sources.find_change() is None
    # From now on it is.
    write(installed / "installed.py", moment=1_000_000_001)
    assert sources.find_change() == installed / "installed.py"
