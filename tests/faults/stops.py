"""SIGSTOP for two TTLs, then SIGCONT: whole groups of processes, or one of them."""

from __future__ import annotations

import os
import random
import signal
import time
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
from tests.testapp import ledgered
from tests.waiting import wait_until

from .audit import audit
from .checker import Findings
from .crew import DRAINED, TTL, Crew
from .ledger import read_ledger
from .scene import Scene, Tally, check, drain, enqueue

# Processes that stand still at the same time; the others have to do.
TOGETHER = 2


@dataclass(slots=True, kw_only=True)
class Halt:
    """A process or a group that stands still, and what it held when it did."""

    pid: int
    is_group: bool
    stopped_at: datetime
    workers: Sequence[UUID] = ()
    # (job, lease token)
    claims: Sequence[tuple[UUID, int]] = ()

    def go_on(self) -> None:
        self.send(signal.SIGCONT)

    def send(self, number: signal.Signals) -> None:
        (os.killpg if self.is_group else os.kill)(self.pid, number)

    def list_taken(self) -> list[UUID]:
        """Return the jobs that others have taken over."""
        tokens = dict(Job.objects.values_list("pk", "lease_token"))
        return [id for id, token in self.claims if tokens[id] > token]


def stop_groups(scene: Scene, *, stops: int) -> Tally:
    """Stop whole groups until others have taken over their jobs, and longer."""
    ledger = scene.make_ledger()
    specs: list[JobSpec] = []
    findings = Findings()
    refused = 0
    with audit() as accepted, scene.gather(size=TOGETHER + 1) as crew:
        crew.wait_until_started()
        for count in _split(stops):
            # Some still run where they were taken over when the first place goes on.
            specs += enqueue(make_jobs(scene.rng, ledger, 40, longest=2 * TTL))
            halts = [
                _halt_group(worker) for worker in scene.rng.sample(crew.workers, count)
            ]
            _stand_still(halts, until_taken=True)
            for halt in halts:
                taken = halt.list_taken()
                refused += len(taken)
                halt.go_on()
                _watch_return(halt, taken, crew, findings)
        drain(crew, timeout=DRAINED)
        found = check(specs, ledger, crew)
    findings.extend(found)
    findings.doubled += accepted
    return Tally(jobs=len(specs), injected=stops, findings=findings, refused=refused)


def stop_unnoticed(scene: Scene, *, stops: int, groups: bool = False) -> Tally:
    """Stop processes that nobody may take for dead: everything happens once.

    One child, for which its supervisor goes on beating; on SQLite a whole group too,
    since there a process that is still there is not rescued.
    """
    ledger = scene.make_ledger()
    specs: list[JobSpec] = []
    with scene.gather() as crew:
        crew.wait_until_started()
        for count in _split(stops):
            specs += enqueue(make_jobs(scene.rng, ledger, 40, longest=TTL / 2))
            halts = _halt_some(crew, scene.rng, count, groups=groups)
            _stand_still(halts, until_taken=False)
            for halt in halts:
                halt.go_on()
        drain(crew, timeout=DRAINED)
        findings = check(specs, ledger, crew)
    for id, story in read_ledger(ledger).items():
        if (len(story.starts), len(story.ends)) != (1, 1):
            findings.doubled.append(f"{id} began {story.starts}, ended {story.ends}")
    for attempt in Attempt.objects.filter(outcome__in=["lost", "crashed"]):
        findings.miscounted.append(f"{attempt.job_id} was {attempt.outcome}")
    return Tally(jobs=len(specs), injected=stops, findings=findings)


def make_jobs(
    rng: random.Random, ledger: Path, count: int, *, longest: float
) -> list[JobSpec]:
    """Return jobs of every kind, half of them as long as the longest."""
    handlers = [
        ledgered.toil,
        ledgered.toil_async,
        ledgered.toil_atomically,
        ledgered.toil_aloud,
        ledgered.toil_aloud,
    ]
    return [
        rng.choice(handlers).spec(
            ledger=str(ledger), seconds=rng.choice([0.3, 0.6, longest, longest])
        )
        for _ in range(count)
    ]


def _split(stops: int) -> list[int]:
    whole, rest = divmod(stops, TOGETHER)
    return [TOGETHER] * whole + [rest] * bool(rest)


def _halt_some(
    crew: Crew, rng: random.Random, count: int, *, groups: bool
) -> list[Halt]:
    if groups:
        return [_halt_group(rng.choice(crew.workers))]
    busy = wait_until(lambda: _list_busy(crew.list_children(), count))
    return [_halt(pid, [pid], is_group=False) for pid in rng.sample(busy, count)]


def _list_busy(pids: Sequence[int], count: int) -> list[int]:
    """Return the processes with running jobs, if there are enough of them."""
    owners = Job.objects.filter(status="running").values("worker_id")
    rows = WorkerHeartbeat.objects.filter(pid__in=pids, pk__in=owners)
    busy = list(rows.values_list("pid", flat=True))
    return busy if len(busy) >= count else []


def _halt_group(worker: WorkerProcess) -> Halt:
    supervisor = worker.process.pid
    # Both of its children have jobs: the busiest moment. On SQLite it may not come: who
    # has a job that keeps the only lock often gets the next one too.
    with suppress(AssertionError):
        wait_until(lambda: _list_busy(list_children(supervisor), 2), timeout=TTL)
    wait_until(lambda: _list_busy(list_children(supervisor), 1))
    return _halt(supervisor, list_children(supervisor), is_group=True)


def _halt(pid: int, children: Sequence[int], *, is_group: bool) -> Halt:
    halt = Halt(pid=pid, is_group=is_group, stopped_at=timezone.now())
    halt.send(signal.SIGSTOP)
    rows = WorkerHeartbeat.objects.filter(pid__in=children)
    halt.workers = list(rows.values_list("pk", flat=True))
    claims = Job.objects.filter(status="running", worker_id__in=halt.workers)
    halt.claims = list(claims.values_list("pk", "lease_token"))
    return halt


def _stand_still(halts: Sequence[Halt], *, until_taken: bool) -> None:
    """Let two TTLs pass; then wait until nothing is left to those that stand still.

    A job whose end was on its way when the process stopped may be locked: nobody takes
    it, and it ends when the process goes on.
    """
    time.sleep(2 * TTL)
    workers = [id for halt in halts for id in halt.workers]
    if until_taken:
        with suppress(AssertionError):
            wait_until(
                lambda: not Job.objects.filter(worker_id__in=workers).exists(),
                timeout=TTL,
            )


def _watch_return(
    halt: Halt, taken: Sequence[UUID], crew: Crew, findings: Findings
) -> None:
    """See that what comes back late is not heard: its beat, its ends, its progress."""
    if not taken:
        findings.lost.append("nobody took over the jobs of a group that stood still")
    rows = WorkerHeartbeat.objects.filter(pk__in=halt.workers)
    back = halt.stopped_at + timedelta(seconds=2 * TTL)
    wait_until(lambda: not rows.filter(last_seen_at__lt=back).exists())
    for row in rows.filter(beating_since__lt=back):
        findings.doubled.append(f"the worker {row.pk} seems never to have been away")
    for id in taken:
        try:
            wait_until(lambda id=id: _is_refused(crew.read_log(), id))
        except AssertionError:
            findings.doubled.append(f"no late write of the job {id} was refused")


def _is_refused(log: str, id: UUID) -> bool:
    return any("lease lost" in line and str(id) in line for line in log.splitlines())
