"""SIGKILL of random processes, children and supervisors, while jobs run."""

from __future__ import annotations

import random
from pathlib import Path

from django_jobqueue import JobSpec
from tests.testapp import ledger_jobs
from tests.waiting import wait_until

from .audit import audit
from .fault_round import (
    FaultRound,
    RoundResult,
    check,
    drain,
    enqueue,
    wait_and_restart,
)
from .ledger import measure_ledger
from .worker_group import DRAIN_SECONDS, WorkerGroup

# One kill of four is of a supervisor, and with it of all its children.
SUPERVISOR_SHARE = 0.25
# About the least that a job writes to the ledger.
LEDGER_BYTES_PER_JOB = 80


def kill_at_random(fault_round: FaultRound, *, kills: int, jobs: int) -> RoundResult:
    """Kill `kills` processes, spread evenly over the work of `jobs` jobs."""
    ledger = fault_round.make_ledger()
    specs: list[JobSpec] = []
    with audit() as accepted, fault_round.start_workers() as group:
        for number in range(kills):
            count = jobs * (number + 1) // kills - len(specs)
            specs += enqueue([make_job(fault_round.rng, ledger) for _ in range(count)])
            ledger_bytes = int(
                LEDGER_BYTES_PER_JOB
                * jobs
                * (number + fault_round.rng.random())
                / kills
            )
            _wait_for_work(group, ledger, ledger_bytes)
            _kill_one(group, fault_round.rng)
        drain(group, timeout=DRAIN_SECONDS)
        findings = check(specs, ledger, group)
    findings.doubled += accepted
    return RoundResult(jobs=len(specs), injected=kills, findings=findings)


def make_job(rng: random.Random, ledger: Path) -> JobSpec:
    """Return the spec of a job of any kind, mostly a short one."""
    seconds = rng.choice([0.0, 0.0, 0.0, 0.01, 0.01, 0.05, 0.05, 0.2])
    work = {"ledger": str(ledger), "seconds": seconds}
    handlers = [
        ledger_jobs.work,
        ledger_jobs.work_async,
        ledger_jobs.work_atomically,
        ledger_jobs.work_with_progress,
    ]
    [handler] = rng.choices(handlers, weights=[8, 6, 6, 1])
    if rng.random() < 0.05:
        handler = ledger_jobs.work_once
    elif handler is not ledger_jobs.work_with_progress and rng.random() < 0.05:
        work["fails"] = 1
    return handler.spec(**work)


def _wait_for_work(group: WorkerGroup, ledger: Path, ledger_bytes: int) -> None:
    """Wait until the ledger has grown to the size at which the next kill is due."""
    wait_and_restart(group, lambda: measure_ledger(ledger) >= ledger_bytes)


def _kill_one(group: WorkerGroup, rng: random.Random) -> None:
    if rng.random() < SUPERVISOR_SHARE:
        group.kill_supervisor(rng)
    else:
        wait_until(lambda: group.kill_child(rng))
