"""Run the package `tasks` of Django's test suite with our backend; used by __main__.

The two classes that the tests name, DummyBackend and ImmediateBackend, are replaced
before the tests are imported; the tests themselves are not changed. On SQLite.
"""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import django
from django.test.runner import DiscoverRunner
from django.test.utils import setup_test_environment

from tests.django_tests.differences import DIFFERENCES


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "tests.django_tests.settings",
            "JOBQUEUE_TEST_DATABASE": "sqlite",
            # A file: a worker opens its own connections.
            "JOBQUEUE_TEST_DIRECTORY": folder,
        }
        django.setup()
        replace_backends()
        return report(run_suite())


def replace_backends() -> None:
    from django.tasks.backends import dummy, immediate

    from tests.django_tests.backends import WaitingBackend, WorkerBackend

    dummy.DummyBackend = WaitingBackend
    immediate.ImmediateBackend = WorkerBackend


def load_cases() -> Iterator[type[unittest.TestCase]]:
    """Yield Django's test classes, with access to the database and to all apps."""
    package = import_module("tasks")
    for path in sorted(Path(package.__path__[0]).glob("test_*.py")):
        module = import_module(f"tasks.{path.stem}")
        for case in vars(module).values():
            is_case = isinstance(case, type) and issubclass(case, unittest.TestCase)
            if is_case and case.__module__ == module.__name__:
                case.databases = {"default"}
                case.available_apps = None
                yield case


def run_suite() -> Outcome:
    setup_test_environment()
    runner = DiscoverRunner(verbosity=0, interactive=False)
    databases = runner.setup_databases()
    try:
        load = unittest.defaultTestLoader.loadTestsFromTestCase
        suite = unittest.TestSuite(load(case) for case in load_cases())
        outcome = Outcome()
        suite.run(outcome)
        return outcome
    finally:
        runner.teardown_databases(databases)


class Outcome(unittest.TestResult):
    """Records each test, and deletes all jobs before it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def startTest(self, test: Any) -> None:  # noqa: N802 (unittest's name)
        from tests.django_tests.backends import delete_jobs

        super().startTest(test)
        self.names.append(name_test(test))
        delete_jobs()

    def find_failed(self) -> dict[str, str]:
        """Return test → traceback."""
        found = [*self.failures, *self.errors]
        return {name_test(test): text for test, text in found}


def name_test(test: Any) -> str:
    """Return TestCase.test_name, for a subtest too."""
    whole = getattr(test, "test_case", test)
    return str(whole.id()).removeprefix("tasks.").partition(".")[2]


def report(outcome: Outcome) -> int:
    """Print the differences; return 0 if they are those in DIFFERENCES."""
    failed = outcome.find_failed()
    for name, text in failed.items():
        if name in DIFFERENCES:
            print(f"differs: {name}\n  {DIFFERENCES[name]}")
        else:
            print(f"FAILED: {name}\n{text}")
    unlisted = failed.keys() - DIFFERENCES.keys()
    passed = [name for name in outcome.names if name not in failed]
    unexpected_passes = [name for name in passed if name in DIFFERENCES]
    for name in unexpected_passes:
        print(f"passes, although it is listed as a difference: {name}")
    print(
        f"Django {django.__version__}: {len(passed)} of {len(outcome.names)} tests "
        f"passed, {len(failed) - len(unlisted)} differ as listed, "
        f"{len(unlisted)} failed."
    )
    return int(bool(unlisted or unexpected_passes or not passed))


if __name__ == "__main__":
    sys.exit(main())
