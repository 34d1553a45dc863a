"""Cases of hostile handlers.

They exit, fork, leave threads, swallow interrupts, return huge results, and leave their
process changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django_jobqueue import DeadJob, Job, JobSpec
from tests.processes import is_alive
from tests.testapp import hostile_jobs
from tests.waiting import wait_until

from .case_runner import CONCURRENCY, PROCESSES, CaseRunner

# So many that every thread of every child gets one, and some get two.
JOBS_FOR_EVERY_THREAD = 2 * PROCESSES * CONCURRENCY
CRASHED = "dead (crashed)"
TIMED_OUT = "dead (timeout)"
FAILED = "dead (exception)"


@dataclass(slots=True)
class HandlerCase:
    """Jobs of a hostile handler, and how each of them must end."""

    name: str
    make: Callable[[str], Sequence[JobSpec]]
    expected: str
    # How often one job may start at most, by its lines in the ledger.
    starts: int | None = None
    # Whether they are cancelled once they run.
    is_cancelled: bool = False
    # Whether each child must exit in a graceful restart afterwards.
    must_restart: bool = False
    specs: Sequence[JobSpec] = ()
    _ledger: Path = field(default_factory=Path)
    # Children that were asked to exit.
    _leaving: list[int] = field(default_factory=list)

    def inject(self, runner: CaseRunner) -> None:
        self._ledger = runner.folder / f"ledger-{runner.cases}"
        self.specs = self.make(str(self._ledger))
        Job.objects.enqueue_many(self.specs)
        if self.is_cancelled:
            wait_until(lambda: len(self._read_starts()) >= len(self.specs))
            for job in Job.objects.filter(pk__in=[spec.id for spec in self.specs]):
                job.cancel()

    def find_violations(self, runner: CaseRunner) -> list[str]:
        found = self._find_wrong_ends() + self._find_wrong_starts()
        if self.must_restart and not found and not self._leaving:
            self._leaving = runner.restart_children()
        return found + [
            f"child {pid} does not exit" for pid in self._leaving if is_alive(pid)
        ]

    def _find_wrong_ends(self) -> list[str]:
        ids = [spec.id for spec in self.specs]
        ends = dict(Job.objects.filter(pk__in=ids).values_list("pk", "status"))
        dead = DeadJob.objects.filter(pk__in=ids).values_list("pk", "reason")
        ends |= {id: f"dead ({reason})" for id, reason in dead}
        wrong = [ends.get(id, "lost") for id in ids]
        return [
            f"{wrong.count(end)} of {len(ids)} hostile jobs are {end}, "
            f"not {self.expected}"
            for end in sorted(set(wrong))
            if end != self.expected
        ]

    def _find_wrong_starts(self) -> list[str]:
        starts = self._read_starts()
        counts = [starts.count(str(spec.id)) for spec in self.specs]
        if self.starts is None or max(counts) <= self.starts:
            return []
        return [f"a job started {max(counts)} times, not {self.starts}"]

    def _read_starts(self) -> list[str]:
        if not self._ledger.exists():
            return []
        return [line.split()[0] for line in self._ledger.read_text().splitlines()]


def list_cases(*, is_server: bool) -> list[HandlerCase]:
    """Return the cases; those that damage a process for good come last."""
    return [
        *_list_exits(),
        *_list_interruptions(),
        *_list_results(),
        *_list_leftovers(is_server=is_server),
    ]


def list_costly_exits() -> list[HandlerCase]:
    """Return exits of jobs that may start again: each start costs one child."""
    return [_make_exit(way, attempts=10) for way in hostile_jobs.EXITS]


def _list_exits() -> list[HandlerCase]:
    once = [_make_exit(way, attempts=1) for way in hostile_jobs.EXITS]
    # A supervisor might take exit code 0 for a success.
    return [*once, _make_exit("exit 0", attempts=10)]


def _make_exit(way: str, *, attempts: int) -> HandlerCase:
    handler = hostile_jobs.leave_process.using(max_attempts=attempts)
    return HandlerCase(
        f"{way}, max_attempts={attempts}",
        lambda ledger: [handler.spec(ledger=ledger, way=way)],
        CRASHED,
        # MAX_CRASHES.
        starts=min(attempts, 3),
    )


def _list_interruptions() -> list[HandlerCase]:
    swallow = hostile_jobs.resist_cancellation
    return [
        _make("swallow a timeout for ever", hostile_jobs.swallow_timeouts, TIMED_OUT),
        _make(
            "swallow a timeout in a coroutine",
            hostile_jobs.swallow_timeouts_async,
            TIMED_OUT,
        ),
        _make(
            "swallow one timeout",
            hostile_jobs.swallow_one_timeout,
            "succeeded",
            count=8,
        ),
        _make(
            "swallow the errors of queries",
            hostile_jobs.swallow_query_errors,
            TIMED_OUT,
        ),
        HandlerCase(
            "swallow a cancellation for ever",
            lambda ledger: [swallow.spec(ledger=ledger, way="go on")],
            "cancelled",
            starts=1,
            is_cancelled=True,
        ),
        HandlerCase(
            "raise another error when cancelled",
            lambda ledger: [swallow.spec(ledger=ledger, way="raise")],
            "cancelled",
            starts=1,
            is_cancelled=True,
        ),
        _make(
            "log in a tight loop",
            hostile_jobs.log_in_a_loop,
            TIMED_OUT,
            count=JOBS_FOR_EVERY_THREAD,
        ),
        _make(
            "log every few milliseconds",
            hostile_jobs.log_in_a_loop,
            TIMED_OUT,
            count=3 * JOBS_FOR_EVERY_THREAD,
            pause=0.003,
        ),
    ]


def _list_results() -> list[HandlerCase]:
    result = hostile_jobs.return_bytes
    return [
        _make("largest results", result, "succeeded", count=12, beyond=0),
        _make("results too large by a byte", result, FAILED, count=12, beyond=1),
        _make("deep result", hostile_jobs.return_depth, FAILED),
        _make("deep recursion", hostile_jobs.recurse, FAILED, count=8),
        _make("message of megabytes", hostile_jobs.raise_megabytes, FAILED, count=4),
    ]


def _list_leftovers(*, is_server: bool) -> list[HandlerCase]:
    separate = {"fork", "close the outputs", "leave a thread", "leave an executor"}
    separate |= {"change the context", "exhaust the descriptors"}
    if not is_server:
        separate.add("end the backend")
    everywhere = [
        _make_leftover(way, count=JOBS_FOR_EVERY_THREAD)
        for way in hostile_jobs.WAYS
        if way not in separate
    ]
    misbehave = hostile_jobs.misbehave_async
    return [
        # One only: two would disturb each other.
        _make_leftover("exhaust the descriptors", count=1),
        _make_leftover("change the context", count=JOBS_FOR_EVERY_THREAD),
        _make(
            "change the context in a coroutine",
            misbehave,
            "succeeded",
            count=8,
            way="change the context",
        ),
        *everywhere,
        _make_leftover("fork", count=2),
        _make_leftover("leave a thread", count=4, must_restart=True),
        _make_leftover("leave an executor", count=4, must_restart=True),
        # Last: such a process cannot write to its log any more.
        _make_leftover("close the outputs", count=1),
    ]


def _make_leftover(way: str, *, count: int, must_restart: bool = False) -> HandlerCase:
    return HandlerCase(
        way,
        lambda ledger: [
            hostile_jobs.misbehave.spec(way=way, ledger=ledger) for _ in range(count)
        ],
        "succeeded",
        starts=1,
        must_restart=must_restart,
    )


def _make(
    name: str, handler: Any, expected: str, *, count: int = 1, **payload: Any
) -> HandlerCase:
    return HandlerCase(
        name, lambda ledger: [handler.spec(**payload) for _ in range(count)], expected
    )
