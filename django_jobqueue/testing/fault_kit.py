"""faults(): kills, pauses and second deliveries of jobs, for tests of handlers.

A kill is recorded as the supervisor records a crash, a pause and a second delivery as
rescue records a loss. A fault strikes at a named point of an attempt of run_jobs(): as
planned, or at random from a seed. A failing test prints the seed, to repeat the run.
"""

from __future__ import annotations

import asyncio
import inspect
import pkgutil
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import wraps
from typing import Any
from unittest import mock
from uuid import UUID, uuid4

from asgiref.sync import sync_to_async

from .. import outcomes
from ..handlers import Handler
from ..job_log import report_rescued
from ..lifecycle.rescue import RescueReport, rescue_from
from ..options import Options
from ..outcomes import judge_crash
from ..storage.database import Database
from ..storage.endings import Ending
from ..storage.ownership import read_owned_jobs
from ..worker.running.in_flight import InFlightJob
from ..worker.running.policy import find_max_attempts
from .clock import stop_clock
from .selection import name_job_type

__all__ = ["END", "START", "Faults", "after", "before", "faults"]


class WorkerKilled(BaseException):
    """Simulates the death of the process. Not an Exception: handlers catch those."""


class Kind(Enum):
    KILL = "kill"
    PAUSE = "pause"
    TWICE = "second delivery"


@dataclass(frozen=True, slots=True)
class Point:
    """Where a fault strikes."""

    name: str
    # The dotted path of a function the handler calls; empty: the handler itself.
    path: str = ""

    def __str__(self) -> str:
        return self.name


# Just before the handler is called.
START = Point("start")
# The handler has returned and its end is not written yet. If it is atomic, its
# transaction is still open.
END = Point("end")


def before(path: str) -> Point:
    """Return the point before a call of a function, such as `"shop.pay.charge"`."""
    return Point(f"before {path}", path)


def after(path: str) -> Point:
    """Return the point after a call of a function."""
    return Point(f"after {path}", path)


@dataclass(slots=True)
class _Plan:
    """A planned fault, and how often it has struck."""

    kind: Kind
    job_type: str
    point: Point
    times: int
    struck: int = 0

    def __str__(self) -> str:
        return f"the {self.kind.value} of {self.job_type} at {self.point}"


@dataclass(frozen=True, slots=True)
class _RandomFaults:
    """Random faults for one handler."""

    rate: float
    points: tuple[Point, ...]
    most: int


def faults(seed: int | None = None) -> Faults:
    """Return a block in which faults strike jobs; its methods plan them.

    `seed` decides the faults of at_random() and the jitter of backoffs; a failing block
    prints it. The queue's clock stands still, unless travel() has set it. The same seed
    repeats the same run. Raises AssertionError at the end if a planned fault has not
    struck, because such a test proves nothing.
    """
    return Faults(random.SystemRandom().randrange(10**6) if seed is None else seed)


class Faults:
    """The faults of one block, and a record of those that struck."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # One line for each fault that struck.
        self.struck: list[str] = []
        self._random = random.Random(seed)
        # Separate from the faults: more retries must not change which faults strike.
        self._jitter = random.Random(f"jitter {seed}")
        self._plans: list[_Plan] = []
        self._random_faults: dict[str, _RandomFaults] = {}
        self._struck_per_job: Counter[UUID] = Counter()
        self._patches = ExitStack()
        self._patched: set[str] = set()

    def kill(self, handler: Any, *, at: Point = END, times: int = 1) -> None:
        """Kill the process of an attempt at this point.

        What the handler did so far stays, except for open transactions. The attempt has
        crashed: the job runs again after a delay, or is dead.
        """
        self._plan(Kind.KILL, handler, at, times)

    def pause(self, handler: Any, *, at: Point = START, times: int = 1) -> None:
        """Pause the process at this point until another worker rescues the job.

        The handler then continues without its lease: assert_owned() raises, its end is
        refused, and an atomic handler is rolled back. The job runs again.
        """
        self._plan(Kind.PAUSE, handler, at, times)

    def deliver_twice(self, handler: Any, *, times: int = 1) -> None:
        """Run a job again after its handler returned, as if its end was not written.

        An atomic handler is rolled back the first time.
        """
        self._plan(Kind.TWICE, handler, END, times)

    def at_random(
        self,
        handler: Any,
        *,
        rate: float = 0.5,
        points: Sequence[Point] = (START, END),
        most: int = 2,
    ) -> None:
        """Strike attempts of a handler with a random fault at a random point.

        `rate` is the share of attempts to strike, `most` the maximum number of faults
        per job. The seed decides which.
        """
        self._random_faults[name_job_type(handler)] = _RandomFaults(
            rate, tuple(points), most
        )
        for point in points:
            self._patch(point)

    def __enter__(self) -> Faults:
        _active.append(self)
        # Delays decide the order of retries, so they must be repeatable.
        self._patches.enter_context(mock.patch.object(outcomes, "random", self._jitter))
        self._patches.enter_context(stop_clock())
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        __tracebackhide__ = True
        _active.remove(self)
        self._patches.close()
        if error is not None:
            error.add_note(self.describe())
            return
        missed = [plan for plan in self._plans if plan.struck < plan.times]
        if missed:
            raise AssertionError(
                f"{missed[0]} has struck {missed[0].struck} times, not "
                f"{missed[0].times}. Did run_jobs() run inside the block, with "
                f"scheduled=True for later attempts?\n{self.describe()}"
            )

    def describe(self) -> str:
        """Return the seed and the faults that struck."""
        lines = "".join(f"\n  {line}" for line in self.struck) or " nothing"
        return f"faults(seed={self.seed}) struck:{lines}"

    def choose(self, job_id: UUID, job_type: str) -> _Plan | None:
        """Return the fault for the next attempt of a job, if any."""
        for plan in self._plans:
            if plan.job_type == job_type and plan.struck < plan.times:
                return plan
        faults = self._random_faults.get(job_type)
        if faults is None:
            return None
        # Always draw all three: a replay must draw the same numbers.
        is_hit = self._random.random() < faults.rate
        kind = self._random.choice(list(Kind))
        point = self._random.choice(faults.points)
        if not is_hit or self._struck_per_job[job_id] >= faults.most:
            return None
        return _Plan(kind, job_type, END if kind is Kind.TWICE else point, 1)

    def record(self, plan: _Plan, held: InFlightJob) -> None:
        plan.struck += 1
        self._struck_per_job[held.claim.id] += 1
        self.struck.append(f"{plan}, attempt {held.claim.attempt}")

    def _plan(self, kind: Kind, handler: Any, point: Point, times: int) -> None:
        if not isinstance(point, Point):
            raise TypeError(
                f"at takes START, END, before('path') or after('path'), not {point!r}."
            )
        self._patch(point)
        self._plans.append(_Plan(kind, name_job_type(handler), point, times))

    def _patch(self, point: Point) -> None:
        """Wrap the function that the point names, to notice its calls."""
        if not point.path or point.path in self._patched:
            return
        self._patched.add(point.path)
        original = pkgutil.resolve_name(point.path)
        wrap = _watch_async if inspect.iscoroutinefunction(original) else _watch
        self._patches.enter_context(
            mock.patch(
                point.path, wrap(original, before(point.path), after(point.path))
            )
        )


_active: list[Faults] = []
_current: ContextVar[Strike | None] = ContextVar("jobqueue_strike", default=None)


def _watch(
    original: Callable[..., Any], first: Point, last: Point
) -> Callable[..., Any]:
    @wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        strike = _current.get()
        if strike is None:
            return original(*args, **kwargs)
        strike.reach(first)
        result = original(*args, **kwargs)
        strike.reach(last)
        return result

    return watched


def _watch_async(
    original: Callable[..., Any], first: Point, last: Point
) -> Callable[..., Any]:
    @wraps(original)
    async def watched(*args: Any, **kwargs: Any) -> Any:
        strike = _current.get()
        if strike is None:
            return await original(*args, **kwargs)
        await strike.areach(first)
        result = await original(*args, **kwargs)
        await strike.areach(last)
        return result

    return watched


def arm(
    held: InFlightJob,
    handler: Handler[..., Any] | None,
    options: Options,
    worker_id: UUID,
) -> Strike:
    """Prepare the fault of one attempt. Outside a faults() block there is none."""
    strike = Strike(held=held, handler=handler, options=options, worker_id=worker_id)
    if _active and handler is not None:
        strike.faults = _active[-1]
        strike.plan = strike.faults.choose(held.claim.id, held.claim.job_type)
    return strike


@dataclass(slots=True, kw_only=True)
class Strike:
    """The fault of one attempt, if it has one. Entered around the handler's call."""

    held: InFlightJob
    handler: Handler[..., Any] | None
    options: Options
    worker_id: UUID
    faults: Faults | None = None
    plan: _Plan | None = None
    has_struck: bool = False
    _patches: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> None:
        if self.plan is not None and self.handler is not None:
            self._patches.callback(_current.reset, _current.set(self))
            call = self._acall if self.handler.is_async else self._call
            wrapped = wraps(self.handler.call)(
                lambda *args, _call=self.handler.call: call(_call, *args)
            )
            self._patches.enter_context(
                mock.patch.object(self.handler, "call", wrapped)
            )

    def __exit__(self, *exc_info: object) -> None:
        self._patches.close()

    def reach(self, point: Point) -> None:
        """Strike if the attempt's fault is planned for this point."""
        if self._is_hit(point):
            if self._kind is not Kind.PAUSE:
                self._kill()
            elif _is_on_event_loop():
                # Queries are refused here: set the flag now, rescue in judge().
                self.held.flags.lost = True
            else:
                self._rescue()

    async def areach(self, point: Point) -> None:
        """See reach()."""
        if self._is_hit(point):
            if self._kind is not Kind.PAUSE:
                self._kill()
            else:
                await sync_to_async(self._rescue)()

    def judge(self, ending: Ending) -> Ending:
        """Return how the attempt ended, given its fault. Rescues the job if needed."""
        if not self.has_struck:
            return ending
        owned = read_owned_jobs(self._db, self.worker_id)
        if owned and self._kind is Kind.KILL:
            return self._crash(ending, crashes=owned[0].crashes)
        if owned:
            self._rescue()
        # The claim is lost: finish must refuse this end.
        return replace(ending, is_written=False)

    def _crash(self, ending: Ending, *, crashes: int) -> Ending:
        """Return the ending that the supervisor writes when a process has died."""
        assert self.plan is not None
        assert self.handler is not None
        claim = self.held.claim
        outcome = judge_crash(
            f"killed at {self.plan.point} by faults()",
            crashes=crashes,
            attempt=claim.attempt,
            max_attempts=find_max_attempts(self.handler, claim, self.options),
            max_crashes=self.options.max_crashes,
            is_alone=True,
            job_type=claim.job_type,
        )
        return replace(ending, outcome=outcome, is_taken=True)

    def is_own(self, error: BaseException) -> bool:
        """Return whether an error is the fault itself."""
        return isinstance(error, WorkerKilled)

    @property
    def _db(self) -> Database:
        return Database(alias=self.options.database)

    @property
    def _kind(self) -> Kind | None:
        return None if self.plan is None else self.plan.kind

    def _is_hit(self, point: Point) -> bool:
        if self.has_struck or self.plan is None or self.plan.point != point:
            return False
        assert self.faults is not None
        self.has_struck = True
        self.faults.record(self.plan, self.held)
        return True

    def _call(self, call: Callable[..., Any], *args: Any) -> Any:
        self.reach(START)
        result = call(*args)
        self._check_killed()
        self.reach(END)
        return result

    async def _acall(self, call: Callable[..., Any], *args: Any) -> Any:
        await self.areach(START)
        result = await call(*args)
        self._check_killed()
        await self.areach(END)
        return result

    def _check_killed(self) -> None:
        """Raise WorkerKilled again if the handler has caught it."""
        if self.has_struck and self._kind is Kind.KILL:
            raise WorkerKilled

    def _kill(self) -> None:
        assert self.plan is not None
        assert self.handler is not None
        # At the end of a handler that is not atomic its effects stay. Raising here
        # would roll back the transactions of `databases`.
        if self.plan.point != END or self.handler.atomic:
            raise WorkerKilled

    def _rescue(self) -> None:
        """Rescue the job as another worker would."""
        assert self.handler is not None
        report = RescueReport()
        rescue_from(self._db, self.worker_id, report, options=self.options)
        for job in report.jobs:
            report_rescued(job, worker_id=uuid4())


def _is_on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
