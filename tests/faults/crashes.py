"""A crash at each point of points.py, with the jobs that it takes to get there."""

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
from tests.testapp import ledgered

from .audit import audit
from .crew import TTL, Crew
from .points import Point
from .scene import Scene, Tally, check, drain, enqueue, wait_reviving

# How long a point may take to be passed, bait and all.
PATIENCE = 90.0
# Before new bait is laid.
AGAIN = 3.0
# Marks rows that only wait to be pruned.
OLD = "testapp.nothing"


def crash_at(scene: Scene, points: Sequence[Point], *, times: int) -> Tally:
    """Crash at each of these points so many times, one crash after the other."""
    ledger = scene.make_ledger()
    specs: list[JobSpec] = []
    with audit() as accepted, scene.gather() as crew:
        for point in points:
            for _ in range(times):
                specs += _crash(crew, point, ledger)
        drain(crew, timeout=PATIENCE)
        wait_reviving(crew, lambda: not Job.objects.filter(job_type=OLD).exists())
        findings = check(specs, ledger, crew)
    findings.doubled += accepted
    known = {spec.id for spec in specs}
    for attempt in Attempt.objects.exclude(job_id__in=known):
        findings.miscounted.append(f"attempt of the pruned job {attempt.job_id}")
    count = len(points) * times
    return Tally(jobs=len(specs), injected=count, findings=findings)


def _crash(crew: Crew, point: Point, ledger: Path) -> list[JobSpec]:
    """Arm a point and lay bait until somebody has died of it; return the jobs."""
    specs: list[JobSpec] = []
    deadline = time.monotonic() + PATIENCE
    point.arm(crew.folder)
    while point.is_armed(crew.folder):
        if time.monotonic() > deadline:
            raise AssertionError(f"nobody came by the point {point.name}")
        specs += BAITS[point.bait](ledger)
        again = time.monotonic() + AGAIN

        def is_over(again: float = again) -> bool:
            return not point.is_armed(crew.folder) or time.monotonic() > again

        wait_reviving(crew, is_over)
    return specs


def _lay_jobs(ledger: Path) -> list[JobSpec]:
    """Jobs of every kind, one of them due in a moment, two that outlast a beat."""
    path = str(ledger)
    return enqueue(
        [
            ledgered.toil.spec(ledger=path),
            ledgered.toil.spec(ledger=path, fails=1),
            ledgered.toil.using(delay=0.2).spec(ledger=path),
            ledgered.toil.spec(ledger=path, seconds=0.7),
            ledgered.toil_async.spec(ledger=path),
            ledgered.toil_async.spec(ledger=path, seconds=0.7),
            ledgered.toil_atomically.spec(ledger=path),
            ledgered.toil_atomically.spec(ledger=path, seconds=0.1),
            ledgered.toil_once.spec(ledger=path),
            ledgered.toil_aloud.spec(ledger=path, seconds=0.2),
        ]
    )


def _lay_death(ledger: Path) -> list[JobSpec]:
    """A job that kills its process, and others beside it."""
    return _lay_jobs(ledger) + enqueue([ledgered.kill_once.spec(ledger=str(ledger))])


def _lay_silence(ledger: Path) -> list[JobSpec]:
    """A worker that is not heard of any more, and its jobs."""
    long_ago = timezone.now() - timedelta(seconds=10 * TTL)
    worker = make_worker(last_seen_at=long_ago, beating_since=long_ago)
    specs = [
        handler.using(delay=600).spec(ledger=str(ledger))
        for handler in (ledgered.toil, ledgered.toil_async, ledgered.toil_atomically)
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


def _lay_old_jobs(ledger: Path) -> list[JobSpec]:
    """Jobs that ended long ago, with attempts, and others that run meanwhile."""
    past = timezone.now() - timedelta(days=2)
    ends = {"finished_at": past, "prune_at": past + timedelta(days=1)}
    # In one transaction: they may be pruned the moment they are there.
    with transaction.atomic():
        for _ in range(5):
            old = make_job(job_type=OLD, payload={}, succeeded=True, **ends)
            Attempt.objects.create(job_id=old.pk, lease_token=1, outcome="succeeded")
    return _lay_jobs(ledger)


BAITS: dict[str, Callable[[Path], list[JobSpec]]] = {
    "jobs": _lay_jobs,
    "death": _lay_death,
    "silence": _lay_silence,
    "old jobs": _lay_old_jobs,
}
