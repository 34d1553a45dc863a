"""Scene: where a fault is injected; Tally: what came of it. Shared by all injectors."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django_jobqueue import Job, JobSpec
from tests.waiting import wait_until

from .checker import Findings, check_jobs
from .crew import BUDGETS, Crew


@dataclass(slots=True, kw_only=True)
class Scene:
    """The databases, a folder of its own, and the source of all chance."""

    env: dict[str, str]
    folder: Path
    rng: random.Random
    # postgresql or sqlite.
    database: str
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def make_ledger(self) -> Path:
        return self.folder / f"ledger-{next(self._numbers)}"

    def gather(self, *, size: int = 2) -> Crew:
        return Crew(self.env, self.folder, size=size)


@dataclass(slots=True, kw_only=True)
class Tally:
    """One round of faults, counted."""

    jobs: int
    injected: int
    findings: Findings
    # Late writes that were tried and refused.
    refused: int = 0


def enqueue(specs: Sequence[JobSpec]) -> list[JobSpec]:
    Job.objects.enqueue_many(specs)
    return list(specs)


def is_drained() -> bool:
    return not Job.objects.exclude(status="succeeded").exists()


def drain(crew: Crew, *, timeout: float) -> None:
    """Wait for the end of all jobs; those that are late are the checker's to find."""
    try:
        wait_until(_reviving(crew, is_drained), timeout=timeout, pause=0.1)
    except AssertionError:
        print(f"not drained within {timeout:g} s: {Job.objects.counts()}")


def wait_reviving(
    crew: Crew, condition: Callable[[], bool], *, timeout: float = 60.0
) -> None:
    """Wait, and start again the supervisors that die meanwhile."""
    wait_until(_reviving(crew, condition), timeout=timeout)


def _reviving(crew: Crew, condition: Callable[[], bool]) -> Callable[[], bool]:
    def is_true() -> bool:
        crew.revive()
        return condition()

    return is_true


def check(specs: Sequence[JobSpec], ledger: Path, crew: Crew) -> Findings:
    """Stop the crew, and hold what was enqueued against the ledger and the tables."""
    codes = crew.stop()
    findings = check_jobs(specs, ledger, budgets=BUDGETS)
    if any(codes):
        findings.miscounted.append(f"workers ended with the codes {codes}")
    findings.miscounted += find_errors(crew.read_log())
    if findings:
        print(crew.read_log())
    return findings


def find_errors(log: str) -> list[str]:
    """Return the lines that tell of a mistake of the worker itself."""
    words = ("error in the", "errand for a child failed", "is stuck", "has died")
    return [line for line in log.splitlines() if any(word in line for word in words)]
