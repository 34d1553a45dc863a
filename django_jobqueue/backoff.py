"""Backoff: the delay after a failed attempt, as users write it and as a row stores it.

Separate from outcomes.py, because every web process imports this with the models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from .exceptions import InvalidOption

# Longer delays would exceed the timestamps of a database.
MAX_DELAY = timedelta(days=36_500)

Seconds: TypeAlias = timedelta | float
BackoffCallable: TypeAlias = Callable[[int, BaseException], Seconds | None]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next attempt.

    `kind` is "steps" (the last one repeats), "exponential" or "linear" (both capped,
    with jitter of 50 to 100 %).
    """

    kind: str
    steps: tuple[timedelta, ...]
    cap: timedelta = MAX_DELAY

    def delay(self, attempt: int, *, jitter: float) -> timedelta:
        """Return the delay after `attempt` (from 1); `jitter` is from 0 to 1."""
        if self.kind == "steps":
            return self.steps[min(attempt, len(self.steps)) - 1]
        # 2 ** 60 seconds is beyond any cap, and larger powers would overflow.
        factor = 2.0 ** min(attempt - 1, 60) if self.kind == "exponential" else attempt
        seconds = min(
            self.steps[0].total_seconds() * factor, self.cap.total_seconds()
        ) * (0.5 + jitter / 2)
        return timedelta(seconds=seconds)

    def dump(self) -> Any:
        """Return the JSON stored in Job.backoff."""
        if self.kind == "steps":
            return [step.total_seconds() for step in self.steps]
        return {self.kind: [self.steps[0].total_seconds(), self.cap.total_seconds()]}


def exponential(base: Seconds = 1, cap: Seconds = 300) -> Backoff:
    """Wait `base × 2^(attempt − 1)`, at most `cap`, with jitter of 50 to 100 %."""
    return Backoff("exponential", (read_seconds(base),), read_seconds(cap))


def linear(step: Seconds = 1, cap: Seconds = 300) -> Backoff:
    """Wait `step × attempt`, at most `cap`, with jitter of 50 to 100 %."""
    return Backoff("linear", (read_seconds(step),), read_seconds(cap))


def read_backoff(value: Any) -> Backoff | BackoffCallable:
    """Read what users write for `backoff`. Raises InvalidOption."""
    if isinstance(value, Backoff):
        return value
    if isinstance(value, list | tuple) and value:
        return Backoff("steps", tuple(read_seconds(step) for step in value))
    if callable(value):
        return value  # type: ignore[no-any-return]
    return Backoff("steps", (read_seconds(value),))


def load_backoff(stored: Any) -> Backoff:
    """Read what Backoff.dump() wrote. Raises InvalidOption."""
    match stored:
        case {"exponential": [step, cap], **rest} if not rest:
            return exponential(step, cap)
        case {"linear": [step, cap], **rest} if not rest:
            return linear(step, cap)
        case [_, *_]:
            return Backoff("steps", tuple(read_seconds(step) for step in stored))
    raise InvalidOption("A stored backoff is no list of seconds and no exponential.")


def find_stored_backoff(text: str | None) -> Backoff | None:
    """Read Job.backoff, a JSON text; None if there is none or SQL wrote another value.

    The caller then uses the backoff of the handler or of the setting.
    """
    try:
        return None if text is None else load_backoff(json.loads(text))
    except (InvalidOption, ValueError, RecursionError):
        return None


def growing_pauses(first: float, longest: float) -> Iterator[float]:
    """Yield the pauses of our own retries and polls: twice as long each time."""
    pause = first
    while True:
        yield pause
        pause = min(pause * 2, longest)


def read_seconds(value: Any) -> timedelta:
    """Read one duration of a backoff. Raises InvalidOption."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if is_number and 0 <= seconds <= MAX_DELAY.total_seconds():
        return timedelta(seconds=seconds)
    raise InvalidOption(
        f"backoff takes seconds, a timedelta, a list of either, exponential(base, "
        f"cap), linear(step, cap) or a callable (attempt, exception), each of 0 or "
        f"more; not {value!r}."
    )
