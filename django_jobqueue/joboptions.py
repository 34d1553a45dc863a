"""The options of one job, checked before anything is written.

`@job(...)`, `handler.using(...)`, `JobSpec(...)` and `Job.objects.enqueue(...)` all
read their options here: a wrong value raises the same error everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, TypedDict

from django.utils.timezone import is_aware

from .backoff import Backoff, Seconds, read_backoff
from .exceptions import (
    InvalidOption,
    InvalidPayload,
    InvalidPriority,
    InvalidTime,
)
from .options import check_queue_name
from .payloads import SURROGATE, dump_json
from .suggestions import suggest_option

MIN_PRIORITY, MAX_PRIORITY = -100, 100
MAX_KEY_LENGTH = 255
MAX_JSON_LENGTH = 65_536
_MAX_DURATION = timedelta(days=36_500)

RowBackoff: TypeAlias = Seconds | Sequence[Seconds] | Backoff
Tags: TypeAlias = list[str] | tuple[str, ...] | set[str] | frozenset[str]


class GivenOptions(TypedDict, total=False):
    """The options of one job as a caller passes them, for type checkers."""

    queue: str | None
    priority: int | None
    run_at: datetime | None
    delay: Seconds | None
    max_attempts: int | None
    timeout: Seconds | None
    backoff: RowBackoff | None
    unique_key: str | None
    expires_at: datetime | None
    tags: Tags | None
    meta: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """The options of one job, checked. None: the handler's, then the setting's."""

    queue: str | None = None
    priority: int | None = None
    run_at: datetime | None = None
    delay: timedelta | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    backoff: Backoff | None = None
    unique_key: str | None = None
    expires_at: datetime | None = None
    # JSON texts, ready to be stored.
    tags: str | None = None
    meta: str | None = None


def read_job_options(given: Mapping[str, Any]) -> JobOptions:
    """Check the options of one job. Raises a subclass of InvalidOption."""
    if not given:
        return NO_OPTIONS
    checked = {}
    for name, value in given.items():
        if name not in _READERS:
            hint = suggest_option(name, JOB_OPTIONS)
            raise InvalidOption(f"A job has no option {name!r}. {hint}")
        if value is not None:
            checked[name] = _READERS[name](value)
    if checked.get("run_at") is not None and checked.get("delay") is not None:
        raise InvalidTime(
            "run_at and delay both set when the job starts; pass only one of them."
        )
    return JobOptions(**checked)


def read_priority(value: Any) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and MIN_PRIORITY <= value <= MAX_PRIORITY:
        return int(value)
    raise InvalidPriority(
        f"A priority is a whole number from {MIN_PRIORITY} to {MAX_PRIORITY} (higher "
        f"runs first), not {value!r}."
    )


def read_max_attempts(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 32_000:
        return int(value)
    raise InvalidOption(
        f"max_attempts is a whole number from 1 to 32000, not {value!r}. "
        f"1 means: never retry."
    )


def read_timeout(value: Any) -> timedelta:
    timeout = _read_duration("timeout", value)
    if timeout > timedelta():
        return timeout
    raise InvalidTime(
        f"timeout is a timedelta or seconds above 0, not {value!r}. "
        f"Leave it out for the handler's, then the setting's."
    )


def read_delay(value: Any) -> timedelta:
    return _read_duration("delay", value)


def _read_duration(name: str, value: Any) -> timedelta:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if is_number and 0 <= seconds <= _MAX_DURATION.total_seconds():
        return timedelta(seconds=seconds)
    raise InvalidTime(
        f"{name} is a timedelta or seconds, from 0 to 100 years, not {value!r}."
    )


def _read_moment(name: str) -> Callable[[Any], datetime]:
    def read(value: Any) -> datetime:
        if not isinstance(value, datetime):
            raise InvalidTime(f"{name} is an aware datetime, not {value!r}.")
        if not is_aware(value):
            raise InvalidTime(
                f"{name} is the naive datetime {value.isoformat()}, which has no time "
                f"zone. Use django.utils.timezone.now() or make_aware()."
            )
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise InvalidTime(
                f"{name} is {value.isoformat()}, which UTC cannot express. Choose a "
                f"time in the years 1 to 9999."
            ) from None

    return read


def _read_backoff(value: Any) -> Backoff:
    backoff = read_backoff(value)
    if isinstance(backoff, Backoff):
        return backoff
    raise InvalidOption(
        "A row cannot store a callable backoff: write @job(backoff=…) on the handler, "
        "or pass seconds, a list, exponential() or linear()."
    )


def _read_unique_key(value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= MAX_KEY_LENGTH:
        is_storable = "\0" not in value and not SURROGATE.search(value)
        if is_storable:
            return value
    raise InvalidOption(
        f"unique_key is a text of 1 to {MAX_KEY_LENGTH} characters without NUL, not "
        f"{str(value)[:80]!r}. Hash a longer key."
    )


def _read_tags(value: Any) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        tags = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        if all(isinstance(tag, str) and 0 < len(tag) <= 100 for tag in tags):
            return _dump(list(tags), "tags")
    raise InvalidOption(
        f"tags is a list of texts of 1 to 100 characters, not {value!r}."
    )


def _read_meta(value: Any) -> str:
    if isinstance(value, dict):
        return _dump(value, "meta")
    raise InvalidOption(f"meta is a dict that JSON can hold, not {value!r}.")


def _dump(value: Any, name: str) -> str:
    try:
        text = dump_json(value, name=name)
    except InvalidPayload as error:
        raise InvalidOption(str(error)) from None
    if len(text) > MAX_JSON_LENGTH:
        raise InvalidOption(
            f"{name} has {len(text):,} characters of JSON, and at most "
            f"{MAX_JSON_LENGTH:,} are allowed. Put the data in the payload."
        )
    return text


_READERS: dict[str, Callable[[Any], Any]] = {
    "queue": check_queue_name,
    "priority": read_priority,
    "run_at": _read_moment("run_at"),
    "delay": read_delay,
    "max_attempts": read_max_attempts,
    "timeout": read_timeout,
    "backoff": _read_backoff,
    "unique_key": _read_unique_key,
    "expires_at": _read_moment("expires_at"),
    "tags": _read_tags,
    "meta": _read_meta,
}
NO_OPTIONS = JobOptions()
JOB_OPTIONS = tuple(_READERS)
