"""SIGSTOP for two TTLs, then SIGCONT: a whole process group, or one process of it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from django.utils import timezone

from django_jobqueue import Job, JobSpec
from django_jobqueue.models import Attempt, WorkerHeartbeat
from tests.processes import WorkerProcess, list_children
from tests.testapp import ledger_jobs
from tests.waiting import wait_until

from .audit import audit
from .checker import Findings
from .fault_round import FaultRound, RoundResult, check, drain, enqueue
from .ledger import read_ledger
from .worker_group import DRAIN_SECONDS, TTL_SECONDS, WorkerGroup

# How many are stopped at the same time; the others take over.
STOPPED_AT_ONCE = 2


@dataclass(slots=True, kw_only=True)
class StoppedProcesses:
    """A stopped process or process group, and its claims at that moment."""

    pids: Sequence[int]
    stopped_at: datetime
    workers: Sequence[UUID] = ()
    # (job, lease token)
    claims: Sequence[tuple[UUID, int]] = ()

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        for pid in self.pids:
            # A resumed supervisor may have ended a child already.
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def list_rescued(self) -> list[UUID]:
        """Return the jobs that other workers have taken over."""
        tokens = dict(Job.objects.values_list("pk", "lease_token"))
        return [id for id, token in self.claims if tokens[id] > token]


def stop_groups(fault_round: FaultRound, *, stops: int) -> RoundResult:
    """Stop whole process groups for longer than their jobs take to be rescued."""
    ledger = fault_round.make_ledger()
    specs: list[JobSpec] = []
    findings = Findings()
    refused = 0
    with (
        audit() as accepted,
        fault_round.start_workers(size=STOPPED_AT_ONCE + 1) as group,
    ):
        group.wait_until_started()
        for count in _split(stops):
            # Some rescued jobs still run when the stopped group resumes.
            specs += enqueue(
                make_jobs(fault_round.rng, ledger, 40, longest=2 * TTL_SECONDS)
            )
            stopped_all = [
                _stop_group(worker)
                for worker in fault_round.rng.sample(group.workers, count)
            ]
            _wait_two_ttls(stopped_all, until_rescued=True)
            for stopped in stopped_all:
                rescued = stopped.list_rescued()
                refused += len(rescued)
                stopped.resume()
                _check_late_writes(stopped, rescued, group, findings)
        drain(group, timeout=DRAIN_SECONDS)
        found = check(specs, ledger, group)
    findings.extend(found)
    findings.doubled += accepted
    return RoundResult(
        jobs=len(specs), injected=stops, findings=findings, refused=refused
    )


def stop_without_rescue(
    fault_round: FaultRound, *, stops: int, groups: bool = False
) -> RoundResult:
    """Stop processes whose jobs must not be rescued: each job runs once.

    One child: its supervisor keeps beating for it. On SQLite also a whole group: there
    the jobs of a process that still exists are not rescued.
    """
    ledger = fault_round.make_ledger()
    specs: list[JobSpec] = []
    with fault_round.start_workers() as group:
        group.wait_until_started()
        for count in _split(stops):
            specs += enqueue(
                make_jobs(fault_round.rng, ledger, 40, longest=TTL_SECONDS / 2)
            )
            stopped_all = _stop_some(group, fault_round.rng, count, groups=groups)
            _wait_two_ttls(stopped_all, until_rescued=False)
            for stopped in stopped_all:
                stopped.resume()
        drain(group, timeout=DRAIN_SECONDS)
        findings = check(specs, ledger, group)
    for id, runs in read_ledger(ledger).items():
        if (len(runs.starts), len(runs.ends)) != (1, 1):
            findings.doubled.append(f"{id} began {runs.starts}, ended {runs.ends}")
    for attempt in Attempt.objects.filter(outcome__in=["lost", "crashed"]):
        findings.miscounted.append(f"{attempt.job_id} was {attempt.outcome}")
    return RoundResult(jobs=len(specs), injected=stops, findings=findings)


def make_jobs(
    rng: random.Random, ledger: Path, count: int, *, longest: float
) -> list[JobSpec]:
    """Return specs of every kind; half of the jobs run for `longest` seconds."""
    handlers = [
        ledger_jobs.work,
        ledger_jobs.work_async,
        ledger_jobs.work_atomically,
        ledger_jobs.work_with_progress,
        ledger_jobs.work_with_progress,
    ]
    return [
        rng.choice(handlers).spec(
            ledger=str(ledger), seconds=rng.choice([0.3, 0.6, longest, longest])
        )
        for _ in range(count)
    ]


def _split(stops: int) -> list[int]:
    whole, rest = divmod(stops, STOPPED_AT_ONCE)
    return [STOPPED_AT_ONCE] * whole + [rest] * bool(rest)


def _stop_some(
    group: WorkerGroup, rng: random.Random, count: int, *, groups: bool
) -> list[StoppedProcesses]:
    if groups:
        return [_stop_group(rng.choice(group.workers))]
    busy = wait_until(lambda: _list_busy(group.list_children(), count))
    return [_stop([pid]) for pid in rng.sample(busy, count)]


def _list_busy(pids: Sequence[int], count: int) -> list[int]:
    """Return the processes with running jobs, if there are at least `count`."""
    owners = Job.objects.filter(status="running").values("worker_id")
    rows = WorkerHeartbeat.objects.filter(pid__in=pids, pk__in=owners)
    busy = list(rows.values_list("pid", flat=True))
    return busy if len(busy) >= count else []


def _stop_group(worker: WorkerProcess) -> StoppedProcesses:
    supervisor = worker.process.pid
    # Preferably both children have jobs. On SQLite that may never happen: the process
    # whose job holds the only lock often gets the next job too.
    with suppress(AssertionError):
        wait_until(
            lambda: _list_busy(list_children(supervisor), 2), timeout=TTL_SECONDS
        )
    wait_until(lambda: _list_busy(list_children(supervisor), 1))
    return _stop([supervisor, *list_children(supervisor)])


def _stop(pids: Sequence[int]) -> StoppedProcesses:
    stopped = StoppedProcesses(pids=pids, stopped_at=timezone.now())
    stopped.send(signal.SIGSTOP)
    rows = WorkerHeartbeat.objects.filter(pid__in=pids)
    stopped.workers = list(rows.values_list("pk", flat=True))
    claims = Job.objects.filter(status="running", worker_id__in=stopped.workers)
    stopped.claims = list(claims.values_list("pk", "lease_token"))
    return stopped


def _wait_two_ttls(
    stopped_all: Sequence[StoppedProcesses], *, until_rescued: bool
) -> None:
    """Wait for two TTLs; then, if asked, until the stopped workers own no job.

    A job whose end was being written when its process stopped may be locked. It is not
    rescued, and ends when the process resumes.
    """
    # By the clock: on SQLite a stopped process may hold the write lock, and then no
    # worker can send a heartbeat.
    later = stopped_all[-1].stopped_at + timedelta(seconds=2 * TTL_SECONDS)
    wait_until(lambda: timezone.now() >= later)
    workers = [id for stopped in stopped_all for id in stopped.workers]
    if until_rescued:
        with suppress(AssertionError):
            wait_until(
                lambda: not Job.objects.filter(worker_id__in=workers).exists(),
                timeout=TTL_SECONDS,
            )


def _check_late_writes(
    stopped: StoppedProcesses,
    rescued: Sequence[UUID],
    group: WorkerGroup,
    findings: Findings,
) -> None:
    """Check that the late heartbeat, ends and progress of a worker have no effect."""
    if not rescued:
        findings.lost.append("no worker took over the jobs of a stopped group")
    rows = WorkerHeartbeat.objects.filter(pk__in=stopped.workers)
    back = stopped.stopped_at + timedelta(seconds=2 * TTL_SECONDS)
    wait_until(lambda: not rows.filter(last_seen_at__lt=back).exists())
    for row in rows.filter(beating_since__lt=back):
        findings.doubled.append(f"the gap of the worker {row.pk} is not recorded")
    for id in rescued:
        try:
            wait_until(lambda id=id: _is_refused(group.read_log(), id))
        except AssertionError:
            findings.doubled.append(f"no late write of the job {id} was refused")


def _is_refused(log: str, id: UUID) -> bool:
    return any("lease lost" in line and str(id) in line for line in log.splitlines())
