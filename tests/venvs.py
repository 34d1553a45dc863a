"""Virtual environments below .venvs/, made on demand and kept while they are current.

    python3 -m tests.venvs dev test,lint    # make .venvs/dev with these extras

The Makefile and matrix.py call it with any `python3`: standard library only, and no
syntax that an older Python cannot parse.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / ".venvs"
OLDEST = (3, 11)
NEWEST = (3, 13)

Version = tuple  # (major, minor)


def make_venv(name: str, *, extras: str, python: str, django: str = "") -> Path:
    """Return the Python of .venvs/<name>; recreate it unless its stamp is current."""
    directory = VENVS / name
    executable = directory / "bin" / "python"
    stamp = directory / "stamp"
    wanted = _stamp(python, extras, django)
    if (
        stamp.exists()
        and stamp.read_text() == wanted
        and python_version(str(executable))
    ):
        _compile(str(executable))
        return executable
    print(f"Making .venvs/{name} …", flush=True)
    shutil.rmtree(directory, ignore_errors=True)
    create_venv(directory, python)
    requirements = ["--editable", f"{ROOT}[{extras}]"]
    if django:
        requirements.append(f"Django~={django}.0")
    pip = [str(executable), "-m", "pip", "--disable-pip-version-check"]
    _run([*pip, "install", "--quiet", *requirements])
    stamp.write_text(wanted)
    _compile(str(executable))
    return executable


def _compile(python: str) -> None:
    """Compile our code, as pip does with packages it installs.

    If PYTHONDONTWRITEBYTECODE is set, every worker that a test starts would compile it
    again, which took longer than the rest of its start.
    """
    folders = ("django_jobqueue", "example_project", "tests", "benchmarks")
    _run([python, "-m", "compileall", "-q", *(str(ROOT / name) for name in folders)])


def find_python(version: Version) -> str | None:
    """Return an interpreter of that version that works, or None."""
    for candidate in _candidates(version):
        if python_version(candidate) == version:
            return candidate
    return None


def default_python() -> tuple[str, Version]:
    """Return the running interpreter if it is new enough, else the oldest suitable."""
    if sys.version_info >= OLDEST:
        return sys.executable, sys.version_info[:2]
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        if python := find_python((3, minor)):
            return python, (3, minor)
    raise SystemExit(
        f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed, but python3 is "
        f"{sys.version.split()[0]} and no newer one was found."
    )


def python_version(python: str) -> Version | None:
    """Return its version by running it: a pyenv shim may exist but fail."""
    try:
        code = "import sys; print(*sys.version_info[:2])"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    if done.returncode:
        return None
    return tuple(int(part) for part in done.stdout.split())


def _candidates(version: Version) -> Iterator[str]:
    if sys.version_info[:2] == version:
        yield sys.executable
    name = "python{}.{}".format(*version)
    for folder in os.get_exec_path():
        yield os.path.join(folder, name)
    for root in _pyenv_roots():
        try:
            folders = list((root / "versions").glob("{}.{}.*".format(*version)))
        except OSError:
            # The folder of another user, which we may not read.
            continue
        # Not free-threaded builds (3.13.1t): some dependencies have no wheels for them.
        for folder in sorted(folders, key=_patch, reverse=True):
            if not folder.name.endswith("t"):
                yield str(folder / "bin" / "python")


def _patch(folder: Path) -> tuple[int, str]:
    patch = folder.name.split(".")[2]
    return int("".join(filter(str.isdigit, patch)) or 0), patch


def _pyenv_roots() -> Iterator[Path]:
    if root := os.environ.get("PYENV_ROOT"):
        yield Path(root)
    if pyenv := shutil.which("pyenv"):
        done = subprocess.run([pyenv, "root"], capture_output=True, text=True)
        if done.returncode == 0:
            yield Path(done.stdout.strip())
    yield Path.home() / ".pyenv"


def create_venv(directory: Path, python: str) -> None:
    code = "import ensurepip, venv"
    if subprocess.run([python, "-c", code], capture_output=True).returncode == 0:
        _run([python, "-m", "venv", str(directory)])
        return
    # Debian has ensurepip in a separate package; pip can install into the venv itself.
    _run([python, "-m", "venv", "--without-pip", str(directory)])
    executable = str(directory / "bin" / "python")
    _run([python, "-m", "pip", "--python", executable, "install", "--quiet", "pip"])


def _stamp(python: str, extras: str, django: str) -> str:
    project = (ROOT / "pyproject.toml").read_bytes()
    parts = [hashlib.sha256(project).hexdigest(), os.path.realpath(python)]
    # Includes the folder: an editable install points to it.
    return "\n".join([*parts, extras, django, str(ROOT)])


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True)
    except subprocess.CalledProcessError:
        raise SystemExit(f"This failed: {' '.join(command)}") from None


def main() -> None:
    name, extras = sys.argv[1:]
    python, _version = default_python()
    make_venv(name, extras=extras, python=python)


if __name__ == "__main__":
    main()
