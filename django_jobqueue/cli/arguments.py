"""Arguments: readers for ids, durations, moments, counts and payloads.

Each reader is an argparse type: it raises ArgumentTypeError, whose message says what
was expected; the program then ends with code 2.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_MAX_DURATION = timedelta(days=36_500)


@dataclass(frozen=True, slots=True)
class IdPrefix:
    """A job's id, or its first hex digits: all ids from `low` to `high`."""

    text: str
    low: UUID
    high: UUID


def read_id(text: str) -> IdPrefix:
    """Read a UUID, or at least its first 8 hex digits."""
    digits = text.strip().lower().replace("-", "")
    if re.fullmatch(r"[0-9a-f]{8,32}", digits):
        low, high = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
        return IdPrefix(text, low, high)
    raise ArgumentTypeError(
        f"{text!r} is not the id of a job: expected a UUID such as "
        f"01997c3e-5b1a-7c3d-8e4f-1a2b3c4d5e6f, or at least its first 8 hex digits."
    )


def read_duration(text: str) -> timedelta:
    """Read seconds, or numbers with units: 90, 1.5h, 1h30m, 7d."""
    seconds = -1.0
    if _DURATION.fullmatch(text):
        seconds = sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(text))
    elif re.fullmatch(r"\d+(\.\d+)?", text):
        seconds = float(text)
    if 0 <= seconds <= _MAX_DURATION.total_seconds():
        return timedelta(seconds=seconds)
    raise ArgumentTypeError(
        f"{text!r} is not a duration: expected seconds, or numbers with units such as "
        f"90s, 5m, 1h30m or 7d."
    )


def read_moment(text: str) -> datetime:
    """Read an ISO 8601 date and time; without an offset it is in TIME_ZONE."""
    try:
        moment = parse_datetime(text)
        if moment is None and (day := parse_date(text)) is not None:
            moment = datetime(day.year, day.month, day.day)
    except ValueError:
        moment = None
    if moment is None:
        raise ArgumentTypeError(
            f"{text!r} is not a time: expected ISO 8601 such as 2030-12-31T23:59Z, or "
            f"without the offset for a time in {timezone.get_current_timezone()}."
        )
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def read_count(low: int, high: int) -> Callable[[str], int]:
    """Read a whole number within limits."""

    def read(text: str) -> int:
        if re.fullmatch(r"-?\d{1,12}", text) and low <= int(text) <= high:
            return int(text)
        raise ArgumentTypeError(
            f"{text!r} is not a whole number from {low} to {high:,}."
        )

    return read


def read_payload(text: str) -> dict[str, Any]:
    """Read a JSON object; `-` reads it from standard input."""
    source = "standard input" if text == "-" else "the payload"
    try:
        payload = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as error:
        raise ArgumentTypeError(
            f"{source} is not JSON ({error}): expected an object such as "
            f"'{{\"user_id\": 1}}'."
        ) from None
    if not isinstance(payload, dict):
        raise ArgumentTypeError(
            f"{source} is {_name_kind(payload)}: expected a JSON object, whose keys "
            f"are the handler's keyword arguments."
        )
    return payload


def add_filters(parser: ArgumentParser, *, action: str) -> None:
    """Add the flags that select many jobs, and --yes."""
    parser.add_argument("--queue", metavar="NAME", help="Jobs of one queue.")
    parser.add_argument("--type", metavar="NAME", help="Jobs of one job type.")
    parser.add_argument("--all", action="store_true", help=f"{action} all jobs.")
    parser.add_argument(
        "--yes", action="store_true", help="Do not ask; required without a terminal."
    )


def _name_kind(value: Any) -> str:
    match value:
        case list():
            return "an array"
        case str():
            return "a string"
        case bool() | None:
            return f"the value {json.dumps(value)}"
    return "a number"
