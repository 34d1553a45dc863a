"""Do what README.md and docs/quickstart.md say, word for word, as a reader would.

    python3 -m tests.quickstart.follow_readme [README.md] [docs/quickstart.md]

`make test-quickstart` calls it. Each page gets a fresh virtual environment and an empty
folder. Its `shell` blocks are run as they stand; a `python` block whose first line
names a file (`# shop/jobs.py`) is added to the end of that file. At the end the job
that the page enqueued must have succeeded.

On SQLite, and if DATABASE_URL is set, on PostgreSQL too, in a database `test_…` made
for this and dropped afterwards. Two things differ from what a reader does: where the
page says `pip install django-jobqueue`, a wheel built from this checkout is installed;
and README.md speaks to somebody who has a project, so one is made by `startproject`.
Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.venvs import create_venv, default_python

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ("README.md", "docs/quickstart.md")
# Under this heading the steps of README.md stand; other pages are steps throughout.
SECTION = "Quickstart"
RESULT = "Hello Ada"

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w./-]+\.py)\n")
REQUIREMENT = re.compile(r"django-jobqueue(\[[\w,]+\])?")
# What another project, or a test run around us, has said is not for the reader.
FOREIGN = re.compile(r"(DJANGO_|PYTHON|JOBQUEUE_|JOB_|WORKER_)")

CHECK_RESULT = f"""
from django_jobqueue import Job
job = Job.objects.get()
found = (job.status, job.result, job.attempts)
assert found == ("succeeded", {RESULT!r}, 1), found
print("The job has", job.status, "with", repr(job.result))
"""


class StepFailed(Exception):
    """One step did not do what the page promises."""


@dataclass(frozen=True)
class Step:
    """One block of a page: commands to run, or text to add to a file."""

    text: str
    # "": commands.
    path: str = ""

    def __str__(self) -> str:
        return f"add to {self.path}" if self.path else self.text.strip()


def read_steps(page: str, *, section: str = "") -> list[Step]:
    """Return the steps of a page, of one section if it is named."""
    if section:
        match = re.search(
            rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)",
            page,
            re.MULTILINE | re.DOTALL,
        )
        if match is None:
            raise StepFailed(f"there is no section {section!r}")
        page = match[1]
    steps = []
    for language, text in BLOCK.findall(page):
        if language == "shell":
            steps.append(Step(text))
        elif language == "python" and (named := FILE.match(text)):
            steps.append(Step(text[named.end() :], named[1]))
    if not steps:
        raise StepFailed("there is nothing to follow")
    return steps


def follow(step: Step, *, folder: Path, env: dict[str, str], wheel: Path) -> None:
    """Do what one step says. Raises StepFailed."""
    if step.path:
        path = folder / step.path
        if not path.parent.is_dir():
            raise StepFailed(f"{step.path}: there is no folder {path.parent.name}")
        with path.open("a") as file:
            file.write(f"\n{step.text}")
        return
    lines = [
        REQUIREMENT.sub(rf"{wheel}\1", line) if "pip install" in line else line
        for line in step.text.splitlines()
    ]
    run(["bash", "-eu", "-c", "\n".join(lines)], folder=folder, env=env)


def run(command: list[str], *, folder: Path, env: dict[str, str]) -> str:
    """Run a command, show what it says and return it. Raises StepFailed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    print("".join(f"    {line}\n" for line in done.stdout.splitlines()), end="")
    if done.returncode:
        raise StepFailed(f"exit code {done.returncode} of: {command[-1].strip()}")
    return done.stdout


def follow_page(name: str, *, wheel: Path, url: str) -> None:
    """Follow one page on one database, and see whether its job has run."""
    is_readme = name == "README.md"
    steps = read_steps((ROOT / name).read_text(), section=SECTION if is_readme else "")
    with tempfile.TemporaryDirectory(prefix="jobqueue-quickstart-") as directory:
        venv, folder = Path(directory, "venv"), Path(directory, "project")
        folder.mkdir()
        create_venv(venv, default_python()[0])
        env = make_env(venv, url)
        with database(url, venv, wheel, env) as address:
            if address:
                env["DATABASE_URL"] = address
            if is_readme:
                make_project(folder, env, url=address)
            for number, step in enumerate(steps, 1):
                print(f"  {number} of {len(steps)}: {step}", flush=True)
                follow(step, folder=folder, env=env, wheel=wheel)
            python = ["python", "manage.py"]
            print("  manage.py check", flush=True)
            run([*python, "check"], folder=folder, env=env)
            print("  the result", flush=True)
            run([*python, "shell", "-c", CHECK_RESULT], folder=folder, env=env)


def make_env(venv: Path, url: str) -> dict[str, str]:
    """Return the environment of somebody who has activated the venv."""
    env = {name: text for name, text in os.environ.items() if not FOREIGN.match(name)}
    env["PATH"] = os.pathsep.join([str(venv / "bin"), env.get("PATH", os.defpath)])
    env["VIRTUAL_ENV"] = str(venv)
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    # pip's progress would hide the rest.
    env["PIP_QUIET"] = "1"
    if not url:
        env.pop("DATABASE_URL", None)
    return env


def make_project(folder: Path, env: dict[str, str], *, url: str) -> None:
    """Make what the reader of README.md has: a project with an app."""
    print("  a project with an app, as startproject and startapp make them", flush=True)
    commands = (
        "python -m pip install 'Django>=5.2'",
        "django-admin startproject mysite .",
        "python manage.py startapp shop",
    )
    for command in commands:
        run(["bash", "-eu", "-c", command], folder=folder, env=env)
    with (folder / "mysite" / "settings.py").open("a") as settings:
        settings.write("\nINSTALLED_APPS += ['shop']\n")
        if url:
            settings.write(
                "import environ\n"
                "DATABASES = {'default': environ.Env().db_url('DATABASE_URL')}\n"
            )


@contextmanager
def database(url: str, venv: Path, wheel: Path, env: dict[str, str]) -> Iterator[str]:
    """Give the address of an empty database on that server; "" for SQLite."""
    if not url:
        yield ""
        return
    # The reader's own database exists already; only a driver can make ours.
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "install", "psycopg[binary]>=3.2"]
    run(pip, folder=ROOT, env=env)
    name = f"test_quickstart_{secrets.token_hex(4)}"
    server, _, _ = url.rpartition("/")
    for_all = (
        "import psycopg, sys; "
        "psycopg.connect(sys.argv[1], autocommit=True).execute(sys.argv[2])"
    )
    ask = [python, "-c", for_all, re.sub(r"^\w+(?=://)", "postgresql", url)]
    run([*ask, f'CREATE DATABASE "{name}"'], folder=ROOT, env=env)
    try:
        yield f"{server}/{name}"
    finally:
        run([*ask, f'DROP DATABASE "{name}" WITH (FORCE)'], folder=ROOT, env=env)


def build_wheel(folder: Path) -> Path:
    """Build the wheel that stands for the one on the package index."""
    python = default_python()[0]
    command = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", str(ROOT)]
    run([*command, "--wheel-dir", str(folder)], folder=folder, env=dict(os.environ))
    [wheel] = folder.glob("django_jobqueue-*.whl")
    return wheel


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", default=PAGES, metavar="PAGE")
    pages = parser.parse_args().pages
    url = os.environ.get("DATABASE_URL", "")
    with tempfile.TemporaryDirectory(prefix="jobqueue-wheel-") as directory:
        wheel = build_wheel(Path(directory))
        for name in pages:
            for label, address in (("SQLite", ""), ("PostgreSQL", url)):
                if label == "PostgreSQL" and not url:
                    print(f"{name} on PostgreSQL: not run, DATABASE_URL is not set")
                    continue
                print(f"{name} on {label}", flush=True)
                try:
                    follow_page(name, wheel=wheel, url=address)
                except (StepFailed, subprocess.TimeoutExpired) as error:
                    print(f"{name} on {label}: FAILED: {error}", file=sys.stderr)
                    return 1
                print(f"{name} on {label}: works", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
