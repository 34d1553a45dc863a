"""FaultRound: what an injector is given. RoundResult: what it returns.

The functions below are the steps that all injectors share: enqueue, drain, check.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from django_jobqueue import Job, JobSpec
from tests.waiting import wait_until

from .checker import Findings, check_jobs
from .worker_group import BUDGETS, WorkerGroup


@dataclass(slots=True, kw_only=True)
class FaultRound:
    """The databases, a folder for this round, and its random generator."""

    env: dict[str, str]
    folder: Path
    rng: random.Random
    # postgresql or sqlite.
    database: str
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def make_ledger(self) -> Path:
        return self.folder / f"ledger-{next(self._numbers)}"

    def start_workers(self, *, size: int = 2) -> WorkerGroup:
        return WorkerGroup(self.env, self.folder, size=size)


@dataclass(slots=True, kw_only=True)
class RoundResult:
    """The counts and findings of one round."""

    jobs: int
    injected: int
    findings: Findings
    # Late writes that were attempted and refused.
    refused: int = 0


def enqueue(specs: Sequence[JobSpec]) -> list[JobSpec]:
    Job.objects.enqueue_many(specs)
    return list(specs)


def is_drained() -> bool:
    return not Job.objects.exclude(status="succeeded").exists()


def drain(group: WorkerGroup, *, timeout: float) -> None:
    """Wait until all jobs have succeeded; the checker reports those that have not."""
    try:
        wait_until(_restarting(group, is_drained), timeout=timeout, pause=0.1)
    except AssertionError:
        print(f"not drained within {timeout:g} s: {Job.objects.counts()}")


def wait_and_restart(
    group: WorkerGroup, condition: Callable[[], bool], *, timeout: float = 60.0
) -> None:
    """Wait for a condition; meanwhile, restart the supervisors that die."""
    wait_until(_restarting(group, condition), timeout=timeout)


def _restarting(
    group: WorkerGroup, condition: Callable[[], bool]
) -> Callable[[], bool]:
    def is_true() -> bool:
        group.restart_killed()
        return condition()

    return is_true


def check(specs: Sequence[JobSpec], ledger: Path, group: WorkerGroup) -> Findings:
    """Stop the workers, then compare the specs with the ledger and the tables."""
    codes = group.stop()
    findings = check_jobs(specs, ledger, budgets=BUDGETS)
    if any(codes):
        findings.miscounted.append(f"workers ended with the codes {codes}")
    findings.miscounted += find_errors(group.read_log())
    if findings:
        print(group.read_log())
    return findings


def find_errors(log: str) -> list[str]:
    """Return the lines that report an error of the worker itself."""
    texts = ("error in the", "errand for a child failed", "is stuck", "has died")
    return [line for line in log.splitlines() if any(text in line for text in texts)]
