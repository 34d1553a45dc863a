"""The seeded bugs of `make mutants` still apply to the code, and the runner is right.

The run itself takes minutes and is not part of the suite.
"""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import DoesNotApply, Edit, Mutant
from tests.mutants.running import (
    ROOT,
    Report,
    Verdict,
    judge,
    read_report,
    run_tests,
    scratch_copy,
)

pytestmark = pytest.mark.once

NAMES = [mutant.name for mutant in MUTANTS]


def change_all(mutant: Mutant) -> dict[str, str]:
    """Return the files of a mutant after its edits."""
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        before = texts.get(edit.file) or (ROOT / edit.file).read_text()
        texts[edit.file] = edit.change(before)
    return texts


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(NAMES).items() if count > 1] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_the_change_still_applies_and_is_valid_python(mutant: Mutant) -> None:
    for file, text in change_all(mutant).items():
        assert text != (ROOT / file).read_text()
        ast.parse(text)


@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_the_tests_that_must_fail_exist(mutant: Mutant) -> None:
    assert mutant.tests
    assert mutant.database in {"postgresql", "sqlite"}
    for selection in mutant.tests:
        file, _, name = selection.partition("::")
        functions = {
            node.name
            for node in ast.walk(ast.parse((ROOT / file).read_text()))
            if isinstance(node, ast.FunctionDef)
        }
        assert not name or name in functions, selection


def test_a_text_that_has_moved_is_reported() -> None:
    edit = Edit("a.py", "x = 1\n", "")
    with pytest.raises(DoesNotApply, match=r"a\.py has this text 0 times, not 1"):
        edit.change("x = 2\n")
    with pytest.raises(DoesNotApply, match="2 times, not 1"):
        edit.change("x = 1\n\nx = 1\n")


def test_all_or_one_of_several_places_are_changed() -> None:
    text = "a; a; a"
    assert Edit("", "a", "b", count=3).change(text) == "b; b; b"
    assert Edit("", "a", "b", count=3, nth=2).change(text) == "a; b; a"


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        (Report(0), Verdict.SURVIVED),
        (Report(1, failed="test_it", message="AssertionError: 1"), Verdict.FOUND),
        (Report(1, failed="test_it", message="NameError: Qx"), Verdict.BROKEN),
        (Report(1, broke="test_it: failed on setup"), Verdict.BROKEN),
        (Report(2, broke="collection failure"), Verdict.BROKEN),
        (Report(4), Verdict.BROKEN),
        (Report(5), Verdict.BROKEN),
        (Report(-9, failed="test_it"), Verdict.BROKEN),
    ],
)
def test_only_a_failing_test_counts_as_found(report: Report, verdict: Verdict) -> None:
    assert judge(report)[0] is verdict


PROBE = """
import pytest

def test_passes():
    pass

def test_fails():
    assert 1 + 1 == 3, "as it must"

def test_breaks(missing):
    pass
"""


@pytest.mark.slow
def test_the_report_of_pytest_in_a_copy_is_read() -> None:
    variables = {"PATH": ""}
    with scratch_copy() as root:
        assert root != ROOT
        assert not (root / ".git").exists()
        (root / "conftest.py").write_text("")
        (root / "test_probe.py").write_text(PROBE)
        (root / "test_invalid.py").write_text("import nothing_of_that_name\n")

        def run(selection: str) -> Report:
            return run_tests(root, ["--noconftest", selection], "sqlite", variables)

        assert run("test_probe.py::test_passes").code == 0
        failed = run("test_probe.py::test_fails")
        broken = run("test_probe.py::test_breaks")
        invalid = run("test_invalid.py")
    assert (failed.failed, failed.broke) == ("test_probe::test_fails", "")
    assert "as it must" in failed.message
    assert broken.failed == invalid.failed == ""
    assert "test_breaks" in broken.broke
    assert "test_invalid" in invalid.broke


def test_a_missing_report_does_not_count_as_found(tmp_path: Path) -> None:
    report = read_report(tmp_path / "none.xml", 3, "it\nended\n")
    assert (report.code, report.output) == (3, "it\nended")
    assert judge(report)[0] is Verdict.BROKEN
