"""The check of the distributions: it finds missing and superfluous files."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.release.__main__ import ROOT, read_version
from tests.release.contents import (
    SDIST_FILES,
    find_faults_of_sdist,
    find_faults_of_wheel,
    find_package_files,
)

pytestmark = pytest.mark.once

VERSION = read_version()
INFO = f"django_jobqueue-{VERSION}.dist-info"
METADATA = f"""\
Name: django-jobqueue
Version: {VERSION}
Requires-Python: >=3.11
License-Expression: BSD-3-Clause
Description-Content-Type: text/markdown

{(ROOT / "README.md").read_text()}"""


def faults_of_wheel(
    folder: Path, names: set[str], *, metadata: str = METADATA
) -> list[str]:
    path = folder / "some.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names | {f"{INFO}/licenses/LICENSE"}:
            archive.writestr(name, "")
        archive.writestr(f"{INFO}/METADATA", metadata)
    return find_faults_of_wheel(path, root=ROOT, version=VERSION)


def faults_of_sdist(folder: Path, names: set[str]) -> list[str]:
    path = folder / "some.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(f"django_jobqueue-{VERSION}/{name}")
            archive.addfile(member, io.BytesIO())
    return find_faults_of_sdist(path, root=ROOT, version=VERSION)


def test_wheel_of_the_package_alone_has_no_faults(tmp_path: Path) -> None:
    assert faults_of_wheel(tmp_path, find_package_files(ROOT)) == []


@pytest.mark.parametrize(
    "name",
    [
        "django_jobqueue/py.typed",
        "django_jobqueue/migrations/0001_initial.py",
        "django_jobqueue/static/jobqueue/admin.css",
    ],
)
def test_file_that_a_wheel_lacks_is_named(tmp_path: Path, name: str) -> None:
    faults = faults_of_wheel(tmp_path, find_package_files(ROOT) - {name})
    assert f"the wheel lacks {name}" in faults


def test_tests_in_a_wheel_are_a_fault(tmp_path: Path) -> None:
    names = find_package_files(ROOT) | {"tests/__init__.py"}
    assert faults_of_wheel(tmp_path, names) == ["the wheel has tests/__init__.py too"]


def test_wrong_version_and_missing_readme_are_faults(tmp_path: Path) -> None:
    metadata = METADATA.replace(VERSION, "9.9.9").replace("# django-jobqueue", "")
    faults = faults_of_wheel(tmp_path, find_package_files(ROOT), metadata=metadata)
    assert faults == [
        f"METADATA says Version: 9.9.9, not {VERSION}",
        "METADATA lacks the README",
    ]


def test_sdist_has_all_that_is_needed_to_build_and_test(tmp_path: Path) -> None:
    names = {
        *find_package_files(ROOT),
        *SDIST_FILES,
        *("docs/index.md", "example_project/manage.py", "tests/settings.py"),
    }
    assert faults_of_sdist(tmp_path, names) == []
    assert faults_of_sdist(
        tmp_path,
        names - {"pyproject.toml", "docs/index.md"} | {"tests/db.sqlite3"},
    ) == [
        "the sdist lacks pyproject.toml",
        "the sdist lacks docs/",
        "the sdist has tests/db.sqlite3 too",
    ]
