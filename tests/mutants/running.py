"""Try seeded bugs: each in a scratch copy of the tree, with the tests it names.

A bug counts as found when a test fails. An error in collection or set-up does not
count, and neither does a failure because the change is not valid Python or SQL.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

from tests.mutants.mutant import DoesNotApply, Mutant

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = (
    ".git", ".venv*", ".tox", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis",
    "_build", "build", "dist", "*.sqlite3*", "images",
)  # fmt: skip
PYTEST = ("-q", "--maxfail=1", "--tb=short", "--hypothesis-seed=0")
PLUGINS = ("-p", "no:randomly", "-p", "no:cacheprovider")
# A run that takes longer has hung.
RUN_SECONDS = 300.0
# Errors that show that the change itself is invalid.
INVALID_CHANGE = re.compile(r"\b(Syntax|Programming|Import|ModuleNotFound|Name)Error\b")


_running: set[subprocess.Popen[bytes]] = set()


class Verdict(StrEnum):
    FOUND = "found"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"


@dataclass(frozen=True)
class Finding:
    """The result for one seeded bug."""

    verdict: Verdict
    detail: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """Pytest's exit code, and the first test with a failure or an error."""

    code: int
    failed: str = ""
    message: str = ""
    broke: str = ""
    output: str = ""


def try_mutant(mutant: Mutant, variables: dict[str, str]) -> Finding:
    """Seed one bug into a fresh copy and run the tests that must find it."""
    started = time.monotonic()
    with scratch_copy() as root:
        try:
            mutant.apply(root)
        except DoesNotApply as error:
            return Finding(Verdict.BROKEN, str(error))
        report = run_tests(root, mutant.tests, mutant.database, variables)
    verdict, detail = judge(report)
    return Finding(verdict, detail, time.monotonic() - started)


def judge(report: Report) -> tuple[Verdict, str]:
    """Return whether the bug was found, and by which test."""
    if report.code == 0:
        return Verdict.SURVIVED, "all tests passed"
    if report.code == 1 and report.failed:
        if INVALID_CHANGE.search(report.message):
            return Verdict.BROKEN, f"the change is not valid: {report.message}"
        return Verdict.FOUND, report.failed
    reason = report.broke or f"pytest exited with code {report.code}\n{report.output}"
    return Verdict.BROKEN, f"no test failed: {reason}"


@contextlib.contextmanager
def scratch_copy() -> Iterator[Path]:
    """Yield a copy of the tree, deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="jobqueue-mutant-") as directory:
        root = Path(directory) / "tree"
        shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*NOT_COPIED))
        yield root


def run_tests(
    root: Path, tests: Sequence[str], database: str, variables: dict[str, str]
) -> Report:
    """Run pytest inside a copy and read its report."""
    xml = root / "report.xml"
    command = [sys.executable, "-m", "pytest", *PYTEST, *PLUGINS, f"--junit-xml={xml}"]
    code, output = _run(
        [*command, *tests],
        root,
        # PYTHONPATH, since the package is also installed from the original folder.
        {**variables, "JOBQUEUE_TEST_DATABASE": database, "PYTHONPATH": str(root)},
    )
    return read_report(xml, code, output)


def read_report(xml: Path, code: int, output: str) -> Report:
    """Read pytest's XML report: a failure is a test's, an error is of its set-up."""
    tail = "\n".join(output.splitlines()[-15:])
    try:
        suite = ElementTree.parse(xml).getroot()[0]
    except (OSError, ElementTree.ParseError, IndexError):
        return Report(code, output=tail)
    failed = message = broke = ""
    for case in suite.iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}".lstrip(":")
        failure, error = case.find("failure"), case.find("error")
        if failure is not None and not failed:
            failed = name
            message = f"{failure.get('message')} {_last_line(failure.text)}"
        if error is not None and not broke:
            broke = f"{name}: {error.get('message')}"
    return Report(code, failed=failed, message=message, broke=broke, output=tail)


def _last_line(text: str | None) -> str:
    return (text or "").strip().rpartition("\n")[2]


def _run(command: list[str], root: Path, env: dict[str, str]) -> tuple[int, str]:
    """Run a command in its own session: its workers are killed with it."""
    with (root / "output").open("w+") as output:
        process = subprocess.Popen(
            command,
            cwd=root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _running.add(process)
        try:
            code = process.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        finally:
            _end(process)
            _running.discard(process)
        output.seek(0)
        return code, output.read()


def end_runs() -> None:
    """Kill the running commands; called from another thread than the waiting ones."""
    for process in list(_running):
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
