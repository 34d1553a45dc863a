"""The points at which a process can be made to kill itself, and what sees to that.

A worker process that finds JOBQUEUE_TEST_CRASHES in its environment loads this as an
app and wraps the functions named below. The variable names a folder: a file in it that
bears the name of a point arms it, and the first process that passes the point takes the
file away and dies of SIGKILL at that very place. Nothing of this is in the package.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from django.apps import AppConfig

VARIABLE = "JOBQUEUE_TEST_CRASHES"
# In place of a growing pause between short lives of a child: so that more faults fit.
PAUSE = 0.25
# In place of a minute between two looks for what is rare.
RARE = 1.0


def is_job_thread() -> bool:
    """Tell whether a handler is being run by this thread."""
    from django_jobqueue.worker.attempt import current_claim

    return current_claim.get() is not None


def is_maintenance() -> bool:
    return threading.current_thread().name == "jobqueue-maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A place in the code, before or after the call of a function."""

    name: str
    # Which part of a job's life or of the worker; tests go part by part.
    part: str
    # module:attribute
    before: str = ""
    after: str = ""
    # What it takes to get there: see BAITS in crashes.py.
    bait: str = "jobs"
    only: Callable[[], bool] = lambda: True
    # Whether an empty answer means that nothing was done.
    needs_result: bool = False
    # Which database has this place; "": all.
    database: str = ""

    @property
    def target(self) -> str:
        return self.before or self.after

    def arm(self, folder: Path) -> None:
        (folder / self.name).touch()

    def is_armed(self, folder: Path) -> bool:
        return (folder / self.name).exists()

    def pass_by(self, folder: Path) -> None:
        """Die here if the point is armed and nobody else dies of it."""
        if not self.is_armed(folder) or not self.only():
            return
        try:
            (folder / self.name).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


WORKER = "django_jobqueue.worker"
CLAIM = f"{WORKER}.claimer:claim_jobs"
READ_REPLY = "django_jobqueue.lifecycle.claim:_sort_claims"
TAKE_JOBS = "django_jobqueue.lifecycle.claim:_take_jobs"
HOLD = f"{WORKER}.held:HeldJobs.add"
PROMOTE = f"{WORKER}.claimer:promote_jobs"
RECONCILE = f"{WORKER}.claimer:read_owned_jobs"
ENTER = f"{WORKER}.held:HeldJob._begin"
EFFECT = "tests.testapp.ledgered:leave_effect"
LEAVE = f"{WORKER}.held:HeldJob.leave"
FINISH_OWN = f"{WORKER}.run:finish_in_transaction"
COMMIT = "django.db.backends.base.base:BaseDatabaseWrapper.commit"
HAND_OVER = f"{WORKER}.finisher:Finisher.put"
FINISH = f"{WORKER}.finisher:finish_attempts"
TELL = f"{WORKER}.finisher:Finisher._tell_done"
PROGRESS = f"{WORKER}.finisher:write_progress"
BEAT = f"{WORKER}.heart:beat_workers"
SPAWN = f"{WORKER}.supervisor:Supervisor._start"
SEE_DEATH = f"{WORKER}.supervisor:Supervisor._bury"
WRITE_DEATH = f"{WORKER}.heart:finish_attempts"
RESCUE = f"{WORKER}.maintenance:rescue_jobs"
PRUNE = f"{WORKER}.maintenance:prune_jobs"

POINTS = [
    Point(name="before-claim", part="claim", before=CLAIM),
    Point(name="in-claim", part="claim", after=TAKE_JOBS, database="sqlite"),
    Point(name="after-claim", part="claim", after=READ_REPLY, needs_result=True),
    Point(name="after-claim-reply", part="claim", after=CLAIM, needs_result=True),
    Point(name="before-hold", part="claim", before=HOLD),
    Point(name="after-hold", part="claim", after=HOLD),
    Point(name="before-promote", part="claim", before=PROMOTE),
    Point(name="after-promote", part="claim", after=PROMOTE, needs_result=True),
    Point(name="before-reconcile", part="claim", before=RECONCILE),
    Point(name="after-reconcile", part="claim", after=RECONCILE, needs_result=True),
    Point(name="before-enter", part="run", before=ENTER),
    Point(name="after-enter", part="run", after=ENTER),
    Point(name="before-effect", part="run", before=EFFECT),
    Point(name="after-effect", part="run", after=EFFECT),
    Point(name="before-leave", part="run", before=LEAVE),
    Point(name="after-leave", part="run", after=LEAVE),
    Point(name="before-own-finish", part="run", before=FINISH_OWN),
    Point(name="after-own-finish", part="run", after=FINISH_OWN),
    Point(name="before-commit", part="run", before=COMMIT, only=is_job_thread),
    Point(name="after-commit", part="run", after=COMMIT, only=is_job_thread),
    Point(name="after-hand-over", part="finish", after=HAND_OVER),
    Point(name="before-progress", part="finish", before=PROGRESS),
    Point(name="after-progress", part="finish", after=PROGRESS),
    Point(name="before-finish", part="finish", before=FINISH),
    Point(name="after-finish", part="finish", after=FINISH),
    Point(name="before-tell", part="finish", before=TELL),
    Point(name="after-tell", part="finish", after=TELL),
    Point(name="before-beat", part="supervisor", before=BEAT),
    Point(name="after-beat", part="supervisor", after=BEAT),
    Point(name="after-spawn", part="supervisor", after=SPAWN, bait="death"),
    Point(name="before-bury", part="supervisor", before=SEE_DEATH, bait="death"),
    Point(name="before-death", part="supervisor", before=WRITE_DEATH, bait="death"),
    Point(name="after-death", part="supervisor", after=WRITE_DEATH, bait="death"),
    Point(name="before-rescue", part="supervisor", before=RESCUE, bait="silence"),
    Point(
        name="after-rescue",
        part="supervisor",
        after=RESCUE,
        bait="silence",
        needs_result=True,
    ),
    Point(name="before-prune", part="supervisor", before=PRUNE, bait="old jobs"),
    Point(
        name="before-prune-commit",
        part="supervisor",
        before=COMMIT,
        bait="old jobs",
        only=is_maintenance,
    ),
    Point(
        name="after-prune",
        part="supervisor",
        after=PRUNE,
        bait="old jobs",
        needs_result=True,
    ),
]
PARTS = list(dict.fromkeys(point.part for point in POINTS))


def list_points(part: str, database: str) -> list[Point]:
    """Return the points of one part that this database has."""
    return [
        point
        for point in POINTS
        if point.part == part and point.database in ("", database)
    ]


class FaultsConfig(AppConfig):
    """Loaded by tests/settings.py where the variable is set."""

    name = "tests.faults"

    def ready(self) -> None:
        from django_jobqueue.worker import maintenance, seats

        seats.LONGEST_PAUSE = PAUSE
        maintenance.RARE = RARE
        watch_points(Path(os.environ[VARIABLE]))


def watch_points(folder: Path) -> None:
    """Wrap every function that a point names."""
    points: dict[str, list[Point]] = defaultdict(list)
    for point in POINTS:
        points[point.target].append(point)
    for target, of_target in points.items():
        module, _, path = target.partition(":")
        *owners, name = path.split(".")
        owner = functools.reduce(getattr, owners, import_module(module))
        setattr(owner, name, _watch(getattr(owner, name), of_target, folder))


def _watch(
    function: Callable[..., Any], points: list[Point], folder: Path
) -> Callable[..., Any]:
    """Die before a call that has something to do, or after one that has done it."""

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        has_work = not any(given == [] for given in args)
        for point in points:
            if point.before and has_work:
                point.pass_by(folder)
        result = function(*args, **kwargs)
        for point in points:
            if point.after and has_work and (result or not point.needs_result):
                point.pass_by(folder)
        return result

    return watched
