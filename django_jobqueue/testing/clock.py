"""travel(): sets the queue's clock to a moment, where it stands still.

Every transition on Django's connection reads it: enqueue, promote, claim, finish,
cancel, requeue. The clocks of Python and of the database are not changed; for code that
calls timezone.now(), use a library such as time-machine as well.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from ..exceptions import InvalidTime
from ..storage import test_hooks
from .block import Block


def travel(to: datetime | timedelta | float | None = None) -> Travel:
    """Set the queue's clock to a datetime, or to a duration from now; None: to now.

    A context manager that yields the JobClock, and a decorator for tests.
    """
    return Travel(to)


def stop_clock() -> AbstractContextManager[object]:
    """Stop the queue's clock for a block, unless a test has set it already."""
    return nullcontext() if test_hooks.clock is not None else Travel(None)


class JobClock:
    """The queue's clock. It stands still until a test moves it."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment

    def move(self, delta: timedelta | float = 0, **units: float) -> datetime:
        """Move forward by a timedelta, by seconds, or by units such as `hours=1`."""
        self._moment = read_target(_read_delta(delta) + timedelta(**units), self.now)
        return self._moment

    def set(self, to: datetime) -> datetime:
        """Move to this moment, which may be earlier."""
        self._moment = read_target(to, self.now)
        return self._moment


class Travel(Block):
    """See travel()."""

    def __init__(self, to: datetime | timedelta | float | None) -> None:
        # Validate now: as a decorator, __enter__ would run only with the test.
        read_target(to, timezone.now)
        self._to = to
        # The clock to restore, one for each entered block.
        self._previous: list[Callable[[], datetime] | None] = []

    def __enter__(self) -> JobClock:
        clock = JobClock(read_target(self._to, test_hooks.clock or timezone.now))
        self._previous.append(test_hooks.clock)
        test_hooks.clock = clock.now
        return clock

    def __exit__(self, *exc_info: object) -> None:
        test_hooks.clock = self._previous.pop()


def read_target(to: Any, now: Callable[[], datetime]) -> datetime:
    """Return the moment to travel to. Raises InvalidTime."""
    if isinstance(to, datetime):
        if timezone.is_aware(to):
            return to
        raise InvalidTime(
            f"travel() takes an aware datetime, not the naive {to.isoformat()}. "
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
