"""The report of `make faults`: the sums, and what counts as a failure."""

from __future__ import annotations

import pytest

from .checker import Findings
from .fault_round import RoundResult
from .report import HEAD, Line, format_report


def make_line(*rounds: Findings) -> Line:
    line = Line("kill")
    for findings in rounds:
        line.add(RoundResult(jobs=1000, injected=7, findings=findings, refused=2))
    return line


def read_table(text: str) -> list[list[str]]:
    rows = [row.split("|")[1:-1] for row in text.splitlines()]
    return [[cell.strip() for cell in row] for row in rows]


def test_rounds_are_summed_up() -> None:
    line = make_line(Findings(), Findings(lost=["a", "b"], doubled=["c"]))
    head, _, body = read_table(format_report([line]))
    assert head == list(HEAD)
    assert body == ["kill", "2,000", "14", "7", "2", "1", "0", "4"]


@pytest.mark.parametrize(
    "findings",
    [Findings(lost=["a"]), Findings(doubled=["a"]), Findings(miscounted=["a"])],
)
def test_any_finding_makes_it_fail(findings: Findings) -> None:
    assert not make_line(Findings(repeated=3)).has_failed
    assert make_line(Findings(), findings).has_failed


def test_round_that_could_not_be_completed_makes_it_fail() -> None:
    line = make_line(Findings())
    line.broken += 1
    assert line.has_failed
    assert "1 rounds broken" in str(line)
