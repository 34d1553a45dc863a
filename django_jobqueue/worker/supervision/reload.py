"""CodeWatcher: finds changes in the files of the project's code, for --reload.

The supervisor runs it: it has loaded the project, and survives code that cannot be
loaded. Django's autoreload knows the files of all loaded modules. The other modules in
the project's own folders count, too: handlers import late, and a missing file must be
noticed when it is created.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from django.utils.autoreload import iter_all_python_module_files

_STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])
_INSTALLED = {"site-packages", "dist-packages"}


class CodeWatcher:
    """Remembers the files as they were at the last call."""

    def __init__(self) -> None:
        self._folders: set[Path] = set()
        self._seen = self._read_files()

    def find_change(self) -> Path | None:
        """Return a file that has changed since the last call, None if none has."""
        before, folders = self._seen, self._folders
        self._seen = self._read_files()
        changed = (
            path
            for path in sorted(before.keys() | self._seen.keys())
            if before.get(path) != self._seen.get(path)
        )
        # A file that is new in a known folder was made or moved there. In any other
        # folder it is a module that this process has just loaded.
        return next(
            (path for path in changed if path in before or path.parent in folders), None
        )

    def _read_files(self) -> dict[Path, int]:
        """Read the modification times of all files, and note their folders."""
        loaded: set[Path] = set(iter_all_python_module_files())
        ours = {path.parent for path in loaded if not _is_installed(path)}
        self._folders = self._folders | ours
        return _read_marks(loaded.union(*map(_list_modules, self._folders)))


def _read_marks(paths: Iterable[Path]) -> dict[Path, int]:
    marks = {}
    for path in paths:
        try:
            marks[path] = os.stat(path).st_mtime_ns
        except OSError:
            # Gone, or being replaced: the next call decides.
            continue
    return marks


def _list_modules(folder: Path) -> Iterator[Path]:
    # Editors keep hidden files beside those they write.
    return (path for path in folder.glob("*.py") if not path.name.startswith("."))


def _is_installed(path: Path) -> bool:
    if not _INSTALLED.isdisjoint(path.parts):
        return True
    return path.is_relative_to(_STANDARD_LIBRARY)
