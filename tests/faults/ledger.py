"""Read the ledger that jobs write: which claims of a job started, which ended.

tests/testapp/ledger_jobs.py writes each line in one write: a line is complete or
missing, however its process ended.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID


@dataclass(slots=True)
class JobRuns:
    """The fences under which one job started and ended, in the order of the file."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


def read_ledger(ledger: Path) -> dict[UUID, JobRuns]:
    """Return the runs of each job that ever started."""
    runs_by_job: dict[UUID, JobRuns] = defaultdict(JobRuns)
    for line in _read_lines(ledger):
        event, id, fence = line.split()
        runs = runs_by_job[UUID(id)]
        (runs.starts if event == "start" else runs.ends).append(int(fence))
    return runs_by_job


def measure_ledger(ledger: Path) -> int:
    """Return the bytes written so far: the file grows as jobs start and end."""
    return ledger.stat().st_size if ledger.exists() else 0


def _read_lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []
