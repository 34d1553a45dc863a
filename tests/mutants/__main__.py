"""Try the seeded bugs and report those that no test finds.

    python -m tests.mutants [--only SUBSTRING] [--jobs N] [--list]

`make mutants` calls it. First the named tests must pass on the unchanged code. Exits
with code 1 if a bug survives, if its text is no longer in the code, or if its tests
could not run. One temporary PostgreSQL server serves all runs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.running import (
    Finding,
    Verdict,
    end_runs,
    judge,
    run_tests,
    scratch_copy,
    try_mutant,
)
from tests.postgres import database_url


def main() -> int:
    options = parse_arguments()
    mutants = [mutant for mutant in MUTANTS if options.only in mutant.name]
    if not mutants:
        print(f"Nothing matches --only {options.only!r}.")
        return 1
    if options.list:
        for mutant in mutants:
            print(f"{mutant.name}: {mutant.breaks}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    try:
        with ExitStack() as resources:
            variables = make_variables()
            if any(mutant.database == "postgresql" for mutant in mutants):
                variables["DATABASE_URL"] = resources.enter_context(database_url())
            if not has_sound_tests(mutants, variables):
                return 1
            findings = try_all(mutants, variables, jobs=options.jobs)
    except KeyboardInterrupt:
        print("\nInterrupted.")
        return 1
    print_table(mutants, findings, seconds=time.monotonic() - started)
    return int(any(found.verdict is not Verdict.FOUND for found in findings))


def parse_arguments() -> argparse.Namespace:
    assert __doc__
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--only", default="", metavar="SUBSTRING", help="those whose name contains it"
    )
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="how many at a time"
    )
    parser.add_argument("--list", action="store_true", help="name them and their rules")
    return parser.parse_args()


def make_variables() -> dict[str, str]:
    """Return the environment of the runs, without variables of another project."""
    theirs = {"DJANGO_SETTINGS_MODULE", "PYTHONPATH", "PYTHONHOME"}
    return {name: value for name, value in os.environ.items() if name not in theirs}


def has_sound_tests(mutants: list[Mutant], variables: dict[str, str]) -> bool:
    """Return whether the named tests pass on the unchanged code."""
    is_sound = True
    for database in sorted({mutant.database for mutant in mutants}):
        tests = {
            test: None
            for mutant in mutants
            for test in mutant.tests
            if mutant.database == database
        }
        say(f"the unchanged code, on {database}: ")
        with scratch_copy() as root:
            report = run_tests(root, list(tests), database, variables)
        is_passed = report.code == 0
        print("passed" if is_passed else f"FAILED\n{judge(report)[1]}\n{report.output}")
        is_sound = is_sound and is_passed
    return is_sound


def try_all(
    mutants: list[Mutant], variables: dict[str, str], *, jobs: int
) -> list[Finding]:
    """Try the mutants, `jobs` at a time; print a line for each."""
    findings = []
    with ThreadPoolExecutor(jobs) as executor:
        tries = executor.map(lambda mutant: try_mutant(mutant, variables), mutants)
        try:
            for number, mutant in enumerate(mutants, 1):
                say(f"[{number}/{len(mutants)}] {mutant.name}: ")
                found = next(tries)
                findings.append(found)
                print(f"{found.verdict}, {found.detail} ({found.seconds:.0f} s)")
        except KeyboardInterrupt:
            executor.shutdown(wait=False, cancel_futures=True)
            end_runs()
            raise
    return findings


def print_table(
    mutants: list[Mutant], findings: list[Finding], *, seconds: float
) -> None:
    width = max(len(mutant.name) for mutant in mutants)
    print()
    for mutant, found in zip(mutants, findings, strict=True):
        print(f"{mutant.name:{width}}  {found.verdict:8}  {mutant.breaks}")
    count = sum(found.verdict is Verdict.FOUND for found in findings)
    print(f"\n{count} of {len(mutants)} found in {seconds:.0f} seconds")


def say(text: str) -> None:
    print(text, end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
