"""travel(): a clock of the queue that stands still where a test puts it.

Every arrow on Django's connection reads it: enqueue, promote, claim, finish, cancel,
requeue. The clocks of Python and of the database go on as before, so that code which
asks timezone.now() needs a library such as time-machine beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from ..exceptions import InvalidTime
from ..lifecycle import seams
from .block import Block


def travel(to: datetime | timedelta | float | None = None) -> Travel:
    """Set the queue's clock: to a moment, or so long after now; None: stop it now.

    A context manager that gives the JobClock, and a decorator of a test.
    """
    return Travel(to)


class JobClock:
    """The time of the queue. It stands still until it is moved."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment

    def move(self, delta: timedelta | float = 0, **units: float) -> datetime:
        """Go on by a timedelta, by seconds, or by `hours=1` and the like."""
        self._moment = read_target(_read_delta(delta) + timedelta(**units), self.now)
        return self._moment

    def set(self, to: datetime) -> datetime:
        """Go to this moment, which may be an earlier one."""
        self._moment = read_target(to, self.now)
        return self._moment


class Travel(Block):
    """See travel()."""

    def __init__(self, to: datetime | timedelta | float | None) -> None:
        # At once: a wrong value shall not wait until a decorated test runs.
        read_target(to, timezone.now)
        self._to = to
        # What stood there before, one for each block that is entered.
        self._before: list[Callable[[], datetime] | None] = []

    def __enter__(self) -> JobClock:
        clock = JobClock(read_target(self._to, seams.clock or timezone.now))
        self._before.append(seams.clock)
        seams.clock = clock.now
        return clock

    def __exit__(self, *exc_info: object) -> None:
        seams.clock = self._before.pop()


def read_target(to: Any, now: Callable[[], datetime]) -> datetime:
    """Return the moment that is meant. Raises InvalidTime."""
    if isinstance(to, datetime):
        if timezone.is_aware(to):
            return to
        raise InvalidTime(
            f"travel() goes to an aware datetime, not to the naive {to.isoformat()}. "
            f"Use timezone.make_aware(), or datetime(…, tzinfo=UTC)."
        )
    return now() + _read_delta(0 if to is None else to)


def _read_delta(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value)
    raise InvalidTime(
        f"travel() takes an aware datetime, a timedelta or seconds, not {value!r}."
    )
