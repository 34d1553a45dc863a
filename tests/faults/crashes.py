"""Crash a process at each point of points.py.

Each point names the workload that makes a process reach it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from django_jobqueue import Job, JobSpec
from django_jobqueue.models import Attempt
from tests.factories import make_job, make_worker
from tests.testapp import ledger_jobs

from .audit import audit
from .fault_round import (
    FaultRound,
    RoundResult,
    check,
    drain,
    enqueue,
    wait_and_restart,
)
from .points import Point
from .worker_group import TTL_SECONDS, WorkerGroup

# A process must reach an armed point within this time.
POINT_SECONDS = 90.0
# How long to wait before the workload is enqueued again.
ENQUEUE_AGAIN_SECONDS = 3.0
# The type of jobs that were inserted as ended, to be pruned.
PRUNED_JOB_TYPE = "testapp.nothing"


def crash_at(
    fault_round: FaultRound, points: Sequence[Point], *, times: int
) -> RoundResult:
    """Crash `times` times at each point, one crash after the other."""
    ledger = fault_round.make_ledger()
    specs: list[JobSpec] = []
    with audit() as accepted, fault_round.start_workers() as group:
        for point in points:
            for _ in range(times):
                specs += _crash(group, point, ledger)
        drain(group, timeout=POINT_SECONDS)
        wait_and_restart(
            group, lambda: not Job.objects.filter(job_type=PRUNED_JOB_TYPE).exists()
        )
        findings = check(specs, ledger, group)
    findings.doubled += accepted
    known = {spec.id for spec in specs}
    for attempt in Attempt.objects.exclude(job_id__in=known):
        findings.miscounted.append(f"attempt of the pruned job {attempt.job_id}")
    count = len(points) * times
    return RoundResult(jobs=len(specs), injected=count, findings=findings)


def _crash(group: WorkerGroup, point: Point, ledger: Path) -> list[JobSpec]:
    """Arm a point and enqueue its workload until a process has died there."""
    specs: list[JobSpec] = []
    deadline = time.monotonic() + POINT_SECONDS
    point.arm(group.folder)
    while point.is_armed(group.folder):
        if time.monotonic() > deadline:
            raise AssertionError(f"no process reached the point {point.name}")
        specs += WORKLOADS[point.workload](ledger)
        again = time.monotonic() + ENQUEUE_AGAIN_SECONDS

        def is_over(again: float = again) -> bool:
            return not point.is_armed(group.folder) or time.monotonic() > again

        wait_and_restart(group, is_over)
    return specs


def _enqueue_jobs(ledger: Path) -> list[JobSpec]:
    """Enqueue jobs of every kind: one is due soon, two outlast a heartbeat."""
    path = str(ledger)
    return enqueue(
        [
            ledger_jobs.work.spec(ledger=path),
            ledger_jobs.work.spec(ledger=path, fails=1),
            ledger_jobs.work.using(delay=0.2).spec(ledger=path),
            ledger_jobs.work.spec(ledger=path, seconds=0.7),
            ledger_jobs.work_async.spec(ledger=path),
            ledger_jobs.work_async.spec(ledger=path, seconds=0.7),
            ledger_jobs.work_atomically.spec(ledger=path),
            ledger_jobs.work_atomically.spec(ledger=path, seconds=0.1),
            ledger_jobs.work_once.spec(ledger=path),
            ledger_jobs.work_with_progress.spec(ledger=path, seconds=0.2),
        ]
    )


def _enqueue_crashing_job(ledger: Path) -> list[JobSpec]:
    """Enqueue a job that kills its process, and others beside it."""
    return _enqueue_jobs(ledger) + enqueue(
        [ledger_jobs.kill_once.spec(ledger=str(ledger))]
    )


def _add_silent_worker(ledger: Path) -> list[JobSpec]:
    """Insert a worker whose heartbeat is overdue, and its running jobs."""
    long_ago = timezone.now() - timedelta(seconds=10 * TTL_SECONDS)
    worker = make_worker(last_seen_at=long_ago, beating_since=long_ago)
    specs = [
        handler.using(delay=600).spec(ledger=str(ledger))
        for handler in (
            ledger_jobs.work,
            ledger_jobs.work_async,
            ledger_jobs.work_atomically,
        )
    ]
    enqueue(specs)
    Job.objects.filter(pk__in=[spec.id for spec in specs]).update(
        status="running",
        worker_id=worker.pk,
        claimed_at=long_ago,
        lease_token=1,
        attempts=1,
    )
    return specs


def _add_old_jobs(ledger: Path) -> list[JobSpec]:
    """Insert jobs that ended long ago, with attempts, and enqueue others."""
    past = timezone.now() - timedelta(days=2)
    ends = {"finished_at": past, "prune_at": past + timedelta(days=1)}
    # One transaction: a job may be pruned as soon as it is committed.
    with transaction.atomic():
        for _ in range(5):
            old = make_job(job_type=PRUNED_JOB_TYPE, payload={}, succeeded=True, **ends)
            Attempt.objects.create(job_id=old.pk, lease_token=1, outcome="succeeded")
    return _enqueue_jobs(ledger)


WORKLOADS: dict[str, Callable[[Path], list[JobSpec]]] = {
    "jobs": _enqueue_jobs,
    "crashing job": _enqueue_crashing_job,
    "silent worker": _add_silent_worker,
    "old jobs": _add_old_jobs,
}
