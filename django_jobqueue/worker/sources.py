"""Sources: the files of the project's code, and whether one has changed; for --reload.

The supervisor looks, since it has loaded the project and outlives code that cannot be
loaded. Django's autoreload knows the files of all loaded modules; the other modules in
the project's own folders are looked at too: handlers import late, and a file that is
wanting has to be seen when it comes.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from django.utils.autoreload import iter_all_python_module_files

_STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])
_INSTALLED = {"site-packages", "dist-packages"}


class Sources:
    """The files as they were at the last look."""

    def __init__(self) -> None:
        self._seen = _read_marks()

    def find_change(self) -> Path | None:
        """Return a file that has changed since the last look, None if none has."""
        before, self._seen = self._seen, _read_marks()
        changed = (
            path
            for path in sorted(before.keys() | self._seen.keys())
            if before.get(path) != self._seen.get(path)
        )
        return next((path for path in changed if _matters(path, before)), None)


def _matters(path: Path, before: dict[Path, int]) -> bool:
    """Tell whether a difference is a change: of an installed module it may be that this
    process has just loaded it."""
    return path in before or not _is_installed(path)


def _read_marks() -> dict[Path, int]:
    marks = {}
    for path in _list_files():
        try:
            marks[path] = os.stat(path).st_mtime_ns
        except OSError:
            # Gone, or being replaced: the next look will tell.
            continue
    return marks


def _list_files() -> set[Path]:
    loaded: set[Path] = set(iter_all_python_module_files())
    folders = {path.parent for path in loaded if not _is_installed(path)}
    return loaded.union(*map(_list_modules, folders))


def _list_modules(folder: Path) -> Iterator[Path]:
    # Editors keep hidden files beside those they write.
    return (path for path in folder.glob("*.py") if not path.name.startswith("."))


def _is_installed(path: Path) -> bool:
    if not _INSTALLED.isdisjoint(path.parts):
        return True
    return path.is_relative_to(_STANDARD_LIBRARY)
