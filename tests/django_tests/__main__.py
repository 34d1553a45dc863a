"""Run Django's own tests of django.tasks against our backend.

    python3 -m tests.django_tests

`make django-tests` calls it. The tests come from Django's source distribution, fetched
with pip for the version that is installed, and are kept below .venvs/ only. Needs
Python 3.12 or newer, as Django 6 does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.matrix import DJANGO
from tests.venvs import ROOT, VENVS, find_python, make_venv

# The folder of the tests in the archive, below its top folder.
FOLDER = "tests/tasks/"


def main() -> int:
    codes = [run(version) for version in sorted(DJANGO) if has_tasks(version)]
    return max(codes)


def has_tasks(version: tuple[int, int]) -> bool:
    """Return whether the Django for this Python has django.tasks itself."""
    return int(DJANGO[version].partition(".")[0]) >= 6


def run(version: tuple[int, int]) -> int:
    """Run the tests of one Django; return the exit code."""
    label = "python{}.{} django{}".format(*version, DJANGO[version])
    python = find_python(version)
    if python is None:
        print(f"{label}: not run, no such interpreter found")
        return 1
    venv_python = make_venv(
        label.replace(" ", "-"), extras="test", python=python, django=DJANGO[version]
    )
    folder = fetch_tests(venv_python)
    print(f"\n{label}", flush=True)
    command = [str(venv_python), "-m", "tests.django_tests.run"]
    path = os.pathsep.join([str(ROOT), str(folder)])
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        # This is the log of the workers.
        print(done.stderr, file=sys.stderr)
    return done.returncode


def fetch_tests(python: Path) -> Path:
    """Return the folder that holds the package `tasks` for the installed Django."""
    code = "import django; print(django.__version__)"
    done = subprocess.run([python, "-c", code], capture_output=True, check=True)
    version = done.stdout.decode().strip()
    folder = VENVS / "django-tests" / version
    if not (folder / "tasks" / "__init__.py").exists():
        with tempfile.TemporaryDirectory() as downloads:
            unpack_tests(download_source(python, version, downloads), folder / "tasks")
    return folder


def download_source(python: Path, version: str, downloads: str) -> Path:
    print(f"Fetching the source of Django {version} …", flush=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "download"]
    options = ["--quiet", "--no-deps", "--no-binary", "Django", "--dest", downloads]
    subprocess.run([*pip, *options, f"Django=={version}"], check=True)
    [archive] = Path(downloads).iterdir()
    return archive


def unpack_tests(archive: Path, target: Path) -> None:
    """Write the files of tests/tasks, which has no folders, into `target`."""
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as source:
        for member in source:
            path = member.name.partition("/")[2]
            content = source.extractfile(member) if path.startswith(FOLDER) else None
            if content is not None:
                (target / Path(path).name).write_bytes(content.read())


if __name__ == "__main__":
    sys.exit(main())
