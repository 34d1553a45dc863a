"""Run BackendConformance against ours and others; print a table in Markdown.

    python -m tests.conformance.run

`make conformance` calls it, in a virtual environment with the newest Django found and
the other backend. On SQLite, which is enough for these tests.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import unittest

import django
from django.test.runner import DiscoverRunner
from django.test.utils import setup_test_environment

SYMBOLS = {"passed": "✓", "failed": "✗", "skipped": "–"}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "tests.conformance.settings",
            "JOBQUEUE_TEST_DATABASE": "sqlite",
            # A file, because worker threads and processes open it too.
            "JOBQUEUE_TEST_DIRECTORY": folder,
        }
        django.setup()
        outcomes = run_all()
    print(as_table(outcomes))
    ours = next(iter(outcomes.values()))
    return int(set(ours.values()) != {"passed"})


def run_all() -> dict[str, dict[str, str]]:
    """Run the tests of every backend, in one test database."""
    from tests.conformance.backends import BACKENDS

    setup_test_environment()
    runner = DiscoverRunner(verbosity=0, interactive=False)
    databases = runner.setup_databases()
    try:
        return {name: run(each) for name, each in BACKENDS.items()}
    finally:
        runner.teardown_databases(databases)


def run(tests: type[unittest.TestCase]) -> dict[str, str]:
    """Return test → passed, failed or skipped."""
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(tests)
    names = [each._testMethodName for each in suite]
    stream = io.StringIO()
    result = unittest.TextTestRunner(stream=stream, verbosity=0).run(suite)
    found = dict.fromkeys(names, "passed")
    for case, _ in result.skipped:
        found[case._testMethodName] = "skipped"
    for case, text in [*result.failures, *result.errors]:
        found[case._testMethodName] = "failed"
        print(f"{tests.__name__}: {case}\n{text}", file=sys.stderr)
    return found


def as_table(outcomes: dict[str, dict[str, str]]) -> str:
    """Return a Markdown table with a row per test and a column per backend."""
    lines = [f"| | {' | '.join(outcomes)} |", f"|---|{':-:|' * len(outcomes)}"]
    for name in sorted({name for found in outcomes.values() for name in found}):
        symbols = [SYMBOLS[found.get(name, "skipped")] for found in outcomes.values()]
        text = name.removeprefix("test_").replace("_", " ")
        lines.append(f"| {text} | {' | '.join(symbols)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
