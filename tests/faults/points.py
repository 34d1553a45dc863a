"""The points at which a test can make a worker process kill itself.

With JOBQUEUE_TEST_CRASHES in its environment, a worker process loads this module as an
app and wraps the functions named below. The variable names a folder. A file in it with
the name of a point arms that point. The first process that reaches the point removes
the file and kills itself there with SIGKILL. The package contains none of this.
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
# Replaces the growing pause before a child is restarted, to fit in more faults.
PAUSE = 0.25
# Replaces the minute between two runs of the rare maintenance steps.
RARE_WORK_SECONDS = 1.0


def is_job_thread() -> bool:
    """Return whether this thread is running a handler."""
    from django_jobqueue.worker.running.attempt import current_claim

    return current_claim.get() is not None


def is_maintenance() -> bool:
    return threading.current_thread().name == "jobqueue-maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A place in the code, before or after the call of a function."""

    name: str
    # The part of a job's life or of the worker; there is one test for each part.
    part: str
    # module:attribute
    before: str = ""
    after: str = ""
    # What makes a process reach the point: see WORKLOADS in crashes.py.
    workload: str = "jobs"
    condition: Callable[[], bool] = lambda: True
    # Whether an empty result means that the function did nothing.
    needs_result: bool = False
    # The only database with this point; "": all have it.
    database: str = ""

    @property
    def target(self) -> str:
        return self.before or self.after

    def arm(self, folder: Path) -> None:
        (folder / self.name).touch()

    def is_armed(self, folder: Path) -> bool:
        return (folder / self.name).exists()

    def crash_if_armed(self, folder: Path) -> None:
        """Kill this process if the point is armed and no other process was faster."""
        if not self.is_armed(folder) or not self.condition():
            return
        try:
            (folder / self.name).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


WORKER = "django_jobqueue.worker"
CLAIM = f"{WORKER}.claiming.claimer:claim_jobs"
READ_REPLY = "django_jobqueue.lifecycle.claim:_sort_claims"
TAKE_JOBS = "django_jobqueue.lifecycle.portable.claim:_take_jobs"
HOLD = f"{WORKER}.running.in_flight:InFlightJobs.add"
PROMOTE = f"{WORKER}.claiming.promoter:promote_jobs"
CHECK_OWNERSHIP = f"{WORKER}.claiming.ownership_check:read_owned_jobs"
ENTER = f"{WORKER}.running.in_flight:InFlightJob._begin"
EFFECT = "tests.testapp.ledger_jobs:leave_effect"
LEAVE = f"{WORKER}.running.in_flight:InFlightJob.leave"
FINISH_OWN = f"{WORKER}.running.call:finish_in_transaction"
COMMIT = "django.db.backends.base.base:BaseDatabaseWrapper.commit"
HAND_OVER = f"{WORKER}.finisher:Finisher.put"
FINISH = f"{WORKER}.finisher:finish_attempts"
TELL = f"{WORKER}.finisher:Finisher._report_done"
PROGRESS = f"{WORKER}.finisher:write_progress"
BEAT = f"{WORKER}.supervision.supervisor_db:beat_workers"
SPAWN = f"{WORKER}.supervision.supervisor:Supervisor._start"
SEE_DEATH = f"{WORKER}.supervision.supervisor:Supervisor._record_death"
WRITE_DEATH = f"{WORKER}.supervision.supervisor_db:finish_attempts"
RESCUE = f"{WORKER}.maintenance:rescue_jobs"
PRUNE = f"{WORKER}.maintenance:prune_jobs"


def _around(name: str, part: str, target: str, **values: Any) -> list[Point]:
    """Return a point before the call of a function, and one after it."""
    return [
        Point(name=f"before-{name}", part=part, before=target, **values),
        Point(name=f"after-{name}", part=part, after=target, **values),
    ]


POINTS = [
    Point(name="before-claim", part="claim", before=CLAIM),
    Point(name="in-claim", part="claim", after=TAKE_JOBS, database="sqlite"),
    Point(name="after-claim", part="claim", after=READ_REPLY, needs_result=True),
    Point(name="after-claim-reply", part="claim", after=CLAIM, needs_result=True),
    *_around("in-flight", "claim", HOLD),
    *_around("promote", "claim", PROMOTE, needs_result=True),
    *_around("ownership-check", "claim", CHECK_OWNERSHIP, needs_result=True),
    *_around("enter", "run", ENTER),
    *_around("effect", "run", EFFECT),
    *_around("leave", "run", LEAVE),
    *_around("atomic-finish", "run", FINISH_OWN),
    *_around("commit", "run", COMMIT, condition=is_job_thread),
    Point(name="after-hand-over", part="finish", after=HAND_OVER),
    *_around("progress", "finish", PROGRESS),
    *_around("finish", "finish", FINISH),
    *_around("report", "finish", TELL),
    *_around("heartbeat", "supervisor", BEAT),
    Point(name="after-spawn", part="supervisor", after=SPAWN, workload="crashing job"),
    Point(
        name="after-child-exit",
        part="supervisor",
        before=SEE_DEATH,
        workload="crashing job",
    ),
    *_around("death-recorded", "supervisor", WRITE_DEATH, workload="crashing job"),
    *_around(
        "rescue", "supervisor", RESCUE, workload="silent worker", needs_result=True
    ),
    Point(name="before-prune", part="supervisor", before=PRUNE, workload="old jobs"),
    Point(
        name="before-prune-commit",
        part="supervisor",
        before=COMMIT,
        workload="old jobs",
        condition=is_maintenance,
    ),
    Point(
        name="after-prune",
        part="supervisor",
        after=PRUNE,
        workload="old jobs",
        needs_result=True,
    ),
]
PARTS = list(dict.fromkeys(point.part for point in POINTS))


def list_points(part: str, database: str) -> list[Point]:
    """Return the points of one part that exist on this database."""
    return [
        point
        for point in POINTS
        if point.part == part and point.database in ("", database)
    ]


class CrashPointsConfig(AppConfig):
    """Loaded by tests/settings.py if the variable is set."""

    name = "tests.faults"

    def ready(self) -> None:
        from django_jobqueue.worker import maintenance
        from django_jobqueue.worker.supervision import process_pool

        process_pool.LONGEST_PAUSE_SECONDS = PAUSE
        maintenance.RARE_WORK_SECONDS = RARE_WORK_SECONDS
        wrap_targets(Path(os.environ[VARIABLE]))


def wrap_targets(folder: Path) -> None:
    """Wrap every function that a point names."""
    points: dict[str, list[Point]] = defaultdict(list)
    for point in POINTS:
        points[point.target].append(point)
    for target, of_target in points.items():
        owner, name = find_owner(target)
        setattr(owner, name, _wrap(getattr(owner, name), of_target, folder))


def find_owner(target: str) -> tuple[Any, str]:
    """Return the module or class of a target, and the name of the function in it."""
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    return functools.reduce(getattr, owners, import_module(module)), name


def _wrap(
    function: Callable[..., Any], points: list[Point], folder: Path
) -> Callable[..., Any]:
    """Crash before a call that has work to do, or after one that has done it."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        has_work = not any(given == [] for given in args)
        for point in points:
            if point.before and has_work:
                point.crash_if_armed(folder)
        result = function(*args, **kwargs)
        for point in points:
            if point.after and has_work and (result or not point.needs_result):
                point.crash_if_armed(folder)
        return result

    return wrapped
