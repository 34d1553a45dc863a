"""faults(): what goes wrong around a job, on purpose, so that handlers can be tried.

A kill is recorded as the supervisor records a death, a pause and a second delivery as
rescue does. They strike at a named point of an attempt that run_jobs() runs: by plan,
or at random from a seed that a failing test prints, so that it can be replayed.
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

from ..handlers import Handler
from ..lifecycle.database import Database
from ..lifecycle.endings import Ending
from ..lifecycle.reconcile import read_owned_jobs
from ..lifecycle.rescue_portable import rescue_portable
from ..options import Options
from ..outcomes import judge_crash
from ..signals import report_rescued
from ..worker.held import HeldJob
from ..worker.policy import find_max_attempts
from .selection import name_job_type

__all__ = ["END", "START", "Faults", "after", "before", "faults"]


class WorkerKilled(BaseException):
    """The process dies here. Not an Exception: a handler must not survive it."""


class Kind(Enum):
    KILL = "kill"
    PAUSE = "pause"
    TWICE = "second delivery"


@dataclass(frozen=True, slots=True)
class Point:
    """Where a fault strikes."""

    name: str
    # The dotted path of what the handler calls; empty: the handler itself.
    path: str = ""

    def __str__(self) -> str:
        return self.name


# The handler is about to be called.
START = Point("start")
# It has returned, and its end is not written: inside the transaction of an atomic one.
END = Point("end")


def before(path: str) -> Point:
    """Name the moment before a function that the handler calls: `"shop.pay.charge"`."""
    return Point(f"before {path}", path)


def after(path: str) -> Point:
    """Name the moment after such a function has returned."""
    return Point(f"after {path}", path)


@dataclass(slots=True)
class _Plan:
    """A fault that was asked for, and how often it has struck."""

    kind: Kind
    job_type: str
    point: Point
    times: int
    struck: int = 0

    def __str__(self) -> str:
        return f"the {self.kind.value} of {self.job_type} at {self.point}"


@dataclass(frozen=True, slots=True)
class _Chance:
    """Faults at random for one handler."""

    rate: float
    points: tuple[Point, ...]
    most: int


def faults(seed: int | None = None) -> Faults:
    """Let things go wrong inside this block; see Faults for what, and where.

    `seed` is for at_random(); a failing block names it. Raises AssertionError at the
    end if a fault that was asked for has not struck: such a test shows nothing.
    """
    return Faults(random.SystemRandom().randrange(10**6) if seed is None else seed)


class Faults:
    """The faults of one block, and what they did."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # What has struck, in words.
        self.struck: list[str] = []
        self._random = random.Random(seed)
        self._plans: list[_Plan] = []
        self._chances: dict[str, _Chance] = {}
        self._hits: Counter[UUID] = Counter()
        self._patches = ExitStack()
        self._patched: set[str] = set()

    def kill(self, handler: Any, *, at: Point = END, times: int = 1) -> None:
        """Let the process of an attempt die at this point.

        What the handler has done so far stays, but for open transactions. The attempt
        has crashed: the job runs again after a delay, or is dead.
        """
        self._plan(Kind.KILL, handler, at, times)

    def pause(self, handler: Any, *, at: Point = START, times: int = 1) -> None:
        """Stop the process at this point for so long that the job is taken away.

        Then the handler goes on, without a lease: assert_owned() raises, its end is
        refused, an atomic one is rolled back. The job runs again.
        """
        self._plan(Kind.PAUSE, handler, at, times)

    def deliver_twice(self, handler: Any, *, times: int = 1) -> None:
        """Run a job again although its handler has returned: the end got lost.

        An atomic handler was rolled back the first time.
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
        """Let attempts of a handler meet any of the three, at any of these points.

        `rate` is the share of the attempts, `most` how many faults one job meets at
        most. Which ones follows from the seed.
        """
        chance = _Chance(rate, tuple(points), most)
        self._chances[name_job_type(handler)] = chance
        for point in chance.points:
            self._patch(point)

    def __enter__(self) -> Faults:
        _active.append(self)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        _active.remove(self)
        self._patches.close()
        if error is not None:
            error.add_note(self.describe())
            return
        missed = [plan for plan in self._plans if plan.struck < plan.times]
        if missed:
            raise AssertionError(
                f"{missed[0]} has struck {missed[0].struck} times and not "
                f"{missed[0].times}. Did run_jobs() run it inside the block, "
                f"with scheduled=True for another attempt?\n{self.describe()}"
            )

    def describe(self) -> str:
        """Say what happened, and how to see it again."""
        story = "".join(f"\n  {line}" for line in self.struck) or " nothing"
        return f"faults(seed={self.seed}) struck:{story}"

    def choose(self, job_id: UUID, job_type: str) -> _Plan | None:
        """Say what the next attempt of a job shall meet."""
        for plan in self._plans:
            if plan.job_type == job_type and plan.struck < plan.times:
                return plan
        chance = self._chances.get(job_type)
        if chance is None:
            return None
        # Drawn for every attempt, so that a replay draws the same.
        is_hit = self._random.random() < chance.rate
        kind = self._random.choice(list(Kind))
        point = self._random.choice(chance.points)
        if not is_hit or self._hits[job_id] >= chance.most:
            return None
        return _Plan(kind, job_type, END if kind is Kind.TWICE else point, 1)

    def note(self, plan: _Plan, held: HeldJob) -> None:
        plan.struck += 1
        self._hits[held.claim.id] += 1
        self.struck.append(f"{plan}, attempt {held.claim.attempt}")

    def _plan(self, kind: Kind, handler: Any, point: Point, times: int) -> None:
        if not isinstance(point, Point):
            raise TypeError(
                f"at is START, END, before('path') or after('path'), not {point!r}."
            )
        self._patch(point)
        self._plans.append(_Plan(kind, name_job_type(handler), point, times))

    def _patch(self, point: Point) -> None:
        """Let the attempt be told when what the point names is called."""
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
    held: HeldJob, handler: Handler[..., Any] | None, options: Options, worker_id: UUID
) -> Strike:
    """Prepare what an attempt shall meet: nothing, outside a faults() block."""
    strike = Strike(held=held, handler=handler, options=options, worker_id=worker_id)
    if _active and handler is not None:
        strike.faults = _active[-1]
        strike.plan = strike.faults.choose(held.claim.id, held.claim.job_type)
    return strike


@dataclass(slots=True, kw_only=True)
class Strike:
    """The fault of one attempt, if it has one. Entered while the handler runs."""

    held: HeldJob
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
        """Hear that the attempt is at this point; strike if it is the one."""
        if self._is_hit(point):
            if self._kind is not Kind.PAUSE:
                self._die()
            elif _is_on_a_loop():
                # No query can be made from here: told now, and taken away afterwards.
                self.held.flags.lost = True
            else:
                self._take_away()

    async def areach(self, point: Point) -> None:
        """See reach()."""
        if self._is_hit(point):
            if self._kind is not Kind.PAUSE:
                self._die()
            else:
                await sync_to_async(self._take_away)()

    def judge(self, ending: Ending) -> Ending:
        """Say how the attempt ended in truth; take its job away if a fault says so."""
        if not self.has_struck:
            return ending
        owned = read_owned_jobs(self._db, self.worker_id)
        if owned and self._kind is Kind.KILL:
            return self._crash(ending, crashes=owned[0].crashes)
        if owned:
            self._take_away()
        # Whatever it says, it comes too late.
        return replace(ending, is_written=False)

    def _crash(self, ending: Ending, *, crashes: int) -> Ending:
        """Say what the supervisor says of a job whose process has died."""
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
        """Tell whether an error is nothing but the fault."""
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
        self.faults.note(self.plan, self.held)
        return True

    def _call(self, call: Callable[..., Any], *args: Any) -> Any:
        self.reach(START)
        result = call(*args)
        self._check_dead()
        self.reach(END)
        return result

    async def _acall(self, call: Callable[..., Any], *args: Any) -> Any:
        await self.areach(START)
        result = await call(*args)
        self._check_dead()
        await self.areach(END)
        return result

    def _check_dead(self) -> None:
        """A handler that catches everything cannot outlive its process."""
        if self.has_struck and self._kind is Kind.KILL:
            raise WorkerKilled

    def _die(self) -> None:
        assert self.plan is not None
        assert self.handler is not None
        # At the end of a handler that is not atomic all it did is there; raising would
        # roll back what `databases` has just committed.
        if self.plan.point != END or self.handler.atomic:
            raise WorkerKilled

    def _take_away(self) -> None:
        """Rescue the job, as any other worker would."""
        assert self.handler is not None
        most = find_max_attempts(self.handler, self.held.claim, self.options)
        run_once = [self.handler.name] if most == 1 else []
        rescued = rescue_portable(
            self._db, [self.worker_id], self.options, run_once, None
        )
        for job in rescued:
            report_rescued(job, worker_id=uuid4())


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
