"""What a wheel and an sdist must and must not contain.

The package's folder is the reference: all its files that are not generated go into the
wheel, and nothing else. Standard library only.
"""

from __future__ import annotations

import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

PACKAGE = "django_jobqueue"
# Each kind of file that build backends have been known to omit.
KINDS = {
    "py.typed": ("py.typed", ""),
    "migrations": ("migrations/", "_initial.py"),
    "templates": ("templates/", ".html"),
    "static files": ("static/", ".css"),
}
SDIST_FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile")
GENERATED = {"__pycache__", ".pyc"}


def find_package_files(root: Path) -> set[str]:
    """Return the files of the package's folder, relative to the root."""
    return {
        path.relative_to(root).as_posix()
        for path in (root / PACKAGE).rglob("*")
        if path.is_file() and not GENERATED & {*path.parts, path.suffix}
    }


def find_faults_of_wheel(wheel: Path, *, root: Path, version: str) -> list[str]:
    """Return the faults of a wheel, one sentence each."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"{PACKAGE}-{version}.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
    ours = {name for name in names if not name.startswith(f"{info}/")}
    expected = find_package_files(root)
    faults = [f"the wheel lacks {name}" for name in sorted(expected - ours)]
    faults += [f"the wheel has {name} too" for name in sorted(ours - expected)]
    for kind, (start, end) in KINDS.items():
        start = f"{PACKAGE}/{start}"
        if not any(name.startswith(start) and name.endswith(end) for name in ours):
            faults.append(f"the wheel has no {kind}")
    if f"{info}/licenses/LICENSE" not in names:
        faults.append("the wheel lacks its licence")
    return faults + find_faults_of_metadata(metadata, root=root, version=version)


def find_faults_of_metadata(text: str, *, root: Path, version: str) -> list[str]:
    """Return the faults of METADATA."""
    metadata = Parser().parsestr(text)
    faults = []
    expected = {
        "Name": "django-jobqueue",
        "Version": version,
        "Requires-Python": ">=3.11",
        "License-Expression": "BSD-3-Clause",
        "Description-Content-Type": "text/markdown",
    }
    for key, value in expected.items():
        if metadata[key] != value:
            faults.append(f"METADATA says {key}: {metadata[key]}, not {value}")
    if (root / "README.md").read_text().strip() not in text:
        faults.append("METADATA lacks the README")
    return faults


def find_faults_of_sdist(sdist: Path, *, root: Path, version: str) -> list[str]:
    """Return the faults of an sdist, one sentence each."""
    top = f"{PACKAGE}-{version}/"
    with tarfile.open(sdist) as archive:
        names = {
            member.name.removeprefix(top)
            for member in archive.getmembers()
            if member.isfile()
        }
    expected = find_package_files(root) | set(SDIST_FILES)
    faults = [f"the sdist lacks {name}" for name in sorted(expected - names)]
    for folder in ("docs", "example_project", "tests"):
        if not any(name.startswith(f"{folder}/") for name in names):
            faults.append(f"the sdist lacks {folder}/")
    foreign = ("sqlite3", ".pyc", ".env")
    hidden = {".venvs", ".git", "_build", "dist", "__pycache__"}
    faults += [
        f"the sdist has {name} too"
        for name in sorted(names)
        if name.endswith(foreign) or hidden & set(name.split("/"))
    ]
    return faults
