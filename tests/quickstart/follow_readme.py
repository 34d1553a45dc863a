"""Execute README.md and docs/quickstart.md literally, as a reader would.

    python3 -m tests.quickstart.follow_readme [README.md] [docs/quickstart.md]

`make test-quickstart` calls it. Each page gets a fresh virtual environment and an empty
folder. Its `shell` blocks are run unchanged; a `python` block whose first line names a
file (`# shop/jobs.py`) is appended to that file. At the end the job that the page
enqueued must have succeeded.

Runs on SQLite, and on PostgreSQL if DATABASE_URL is set, in a database `test_…` that is
created and dropped. The pages install from a checkout beside the project: a link to
this one is put there. `make release` passes a wheel to install instead. README.md
assumes a project, so `startproject` makes one. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.venvs import create_venv, default_python

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ("README.md", "docs/quickstart.md")
# The steps of README.md are under this heading; other pages consist of steps only.
SECTION = "Quickstart"
RESULT = "Hello Ada"

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w./-]+\.py)\n")
CHECKOUT = "django-jobqueue"
REQUIREMENT = re.compile(rf"(?:\.\./)?{CHECKOUT}(\[[\w,]+\])?")
# Variables of another project or of a surrounding test run, removed for the reader.
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
    # "" for a block of commands.
    path: str = ""

    def __str__(self) -> str:
        return f"add to {self.path}" if self.path else self.text.strip()


def read_steps(page: str, *, section: str = "") -> list[Step]:
    """Return the steps of a page, or of one section of it."""
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


def follow(
    step: Step, *, folder: Path, env: dict[str, str], wheel: Path | None
) -> None:
    """Execute one step. Raises StepFailed."""
    if step.path:
        path = folder / step.path
        if not path.parent.is_dir():
            raise StepFailed(f"{step.path}: there is no folder {path.parent.name}")
        with path.open("a") as file:
            file.write(f"\n{step.text}")
        return
    lines = [
        REQUIREMENT.sub(rf"{wheel}\1", line)
        if wheel and "pip install" in line
        else line
        for line in step.text.splitlines()
    ]
    run(["bash", "-eu", "-c", "\n".join(lines)], folder=folder, env=env)


def run(command: list[str], *, folder: Path, env: dict[str, str]) -> str:
    """Run a command, print its output and return it. Raises StepFailed."""
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


def follow_page(name: str, *, wheel: Path | None, url: str) -> None:
    """Follow one page on one database, and check that its job has run."""
    is_readme = name == "README.md"
    steps = read_steps((ROOT / name).read_text(), section=SECTION if is_readme else "")
    with tempfile.TemporaryDirectory(prefix="jobqueue-quickstart-") as directory:
        venv, folder = Path(directory, "venv"), Path(directory, "project")
        folder.mkdir()
        Path(directory, CHECKOUT).symlink_to(ROOT)
        create_venv(venv, default_python()[0])
        env = make_env(venv, url)
        with database(url, venv, env) as address:
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
    """Return the environment of a user who has activated the venv."""
    env = {name: text for name, text in os.environ.items() if not FOREIGN.match(name)}
    env["PATH"] = os.pathsep.join([str(venv / "bin"), env.get("PATH", os.defpath)])
    env["VIRTUAL_ENV"] = str(venv)
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    # pip's progress would hide the other output.
    env["PIP_QUIET"] = "1"
    if not url:
        env.pop("DATABASE_URL", None)
    return env


def make_project(folder: Path, env: dict[str, str], *, url: str) -> None:
    """Make what README.md assumes: a project with an app."""
    print("  a project with an app, as startproject and startapp make them", flush=True)
    commands = (
        "python -m pip install 'Django>=5.2'",
        "django-admin startproject mysite .",
        "python manage.py startapp shop",
    )
    for command in commands:
        run(["bash", "-eu", "-c", command], folder=folder, env=env)
    if url:
        with (folder / "mysite" / "settings.py").open("a") as settings:
            settings.write(
                "\nimport environ\n"
                "DATABASES = {'default': environ.Env().db_url('DATABASE_URL')}\n"
            )


@contextmanager
def database(url: str, venv: Path, env: dict[str, str]) -> Iterator[str]:
    """Yield the address of an empty database on that server; "" for SQLite."""
    if not url:
        yield ""
        return
    # Only a driver can create the database, and it is installed in the venv.
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


def follow_pages(pages: Sequence[str], *, wheel: Path | None, url: str) -> int:
    """Follow each page on each database; return the exit code."""
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", default=PAGES, metavar="PAGE")
    pages = parser.parse_args().pages
    return follow_pages(pages, wheel=None, url=os.environ.get("DATABASE_URL", ""))


if __name__ == "__main__":
    sys.exit(main())
