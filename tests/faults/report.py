"""The report of `make faults`: the faults injected and the findings, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .fault_round import RoundResult

HEAD = (
    "fault",
    "jobs",
    "injected",
    "survived",
    "lost",
    "doubled",
    "miscounted",
    "refused",
)


@dataclass(slots=True)
class Line:
    """The sums of all rounds of one fault."""

    name: str
    jobs: int = 0
    injected: int = 0
    # Faults of rounds in which the checker found nothing wrong.
    survived: int = 0
    lost: int = 0
    doubled: int = 0
    miscounted: int = 0
    # Late writes that were attempted and refused.
    refused: int = 0
    # Rounds that could not be completed.
    broken: int = 0
    # Seconds of all rounds.
    seconds: float = 0.0

    def add(self, result: RoundResult) -> None:
        findings = result.findings
        self.jobs += result.jobs
        self.injected += result.injected
        self.survived += 0 if findings else result.injected
        self.lost += len(findings.lost)
        self.doubled += len(findings.doubled)
        self.miscounted += len(findings.miscounted)
        self.refused += result.refused

    @property
    def has_failed(self) -> bool:
        return bool(self.lost or self.doubled or self.miscounted or self.broken)

    def __str__(self) -> str:
        text = f"{self.injected:,} injected over {self.jobs:,} jobs, {self.lost} lost, "
        text += f"{self.doubled} doubled, {self.miscounted} miscounted"
        return text + (f", {self.broken} rounds broken" if self.broken else "")


def format_report(lines: Iterable[Line]) -> str:
    """Return the table, as Markdown."""
    rows = [HEAD, *(_format_cells(line) for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *body = [_format_row(row, widths) for row in rows]
    rule = "|".join(["", "-", *["-:"] * (len(HEAD) - 1), ""])
    return "\n".join([head, rule, *body])


def _format_cells(line: Line) -> list[str]:
    return [line.name, *(f"{getattr(line, name):,}" for name in HEAD[1:])]


def _format_row(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *numbers = [
        text.rjust(width) for text, width in zip(row, widths, strict=True)
    ]
    return f"| {' | '.join([name.strip().ljust(widths[0]), *numbers])} |"
