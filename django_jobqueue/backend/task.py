"""JobTask: a Task of django.tasks with the options of our jobs.

Options with a column in the row (max_attempts, timeout, unique_key, …) can be set for
one call with `using()`. The others (retry_on, atomic, …) belong to the task itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from ..backoff import Backoff, read_backoff
from ..exceptions import InvalidOption
from ..handlers import RetryOn
from ..joboptions import read_job_options
from ..suggestions import suggest_option
from .api import InvalidTask, Task


class Moment(Enum):
    """A value of `using(run_after=…)` that is neither a datetime nor a timedelta."""

    NOW = "now"


# using(run_after=NOW) clears the run_after of an earlier using().
NOW = Moment.NOW

# Each of these has a column in the row.
ROW_OPTIONS = (
    "max_attempts",
    "timeout",
    "backoff",
    "unique_key",
    "expires_at",
    "tags",
    "meta",
)
# These exist in code only.
CODE_OPTIONS = ("retry_on", "discard_on", "databases", "atomic")
# What using() takes.
USING_OPTIONS = (
    *("priority", "queue_name", "run_after", "backend"),
    *ROW_OPTIONS,
    *CODE_OPTIONS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask(Task):  # type: ignore[misc]
    """A task with retries, a time-out, a unique key and the other job options."""

    max_attempts: int | None = None
    timeout: timedelta | float | None = None
    backoff: Any = None
    retry_on: RetryOn | None = None
    discard_on: type[BaseException] | tuple[type[BaseException], ...] = ()
    databases: tuple[str, ...] | list[str] = ()
    atomic: bool = False
    unique_key: str | None = None
    expires_at: datetime | None = None
    tags: Any = None
    meta: dict[str, Any] | None = None
    # Set by run_after=timedelta(…). Counted from the enqueue, not from using().
    delay: timedelta | None = None

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | Moment | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> JobTask:
        """Return this task with other options. None leaves an option as it is.

        Takes Django's four and every option of a job. `run_after` may be a timedelta,
        counted from the enqueue, or NOW, which clears an earlier value.
        """
        changes: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "backend": backend,
            **options,
        }
        changes = {name: each for name, each in changes.items() if each is not None}
        for name in options:
            if name not in ROW_OPTIONS and name not in CODE_OPTIONS:
                hint = suggest_option(name, USING_OPTIONS)
                raise TypeError(f"using() has no option {name!r}. {hint}")
        if isinstance(run_after, timedelta):
            changes |= {"run_after": None, "delay": run_after}
        elif run_after is NOW:
            changes |= {"run_after": None, "delay": None}
        elif run_after is not None:
            changes |= {"run_after": run_after, "delay": None}
        return replace(self, **changes)


def read_row_options(task: Any) -> dict[str, Any]:
    """Return the row options that a task sets; none for a plain Task of Django."""
    found = {name: getattr(task, name, None) for name in ROW_OPTIONS}
    given = {name: value for name, value in found.items() if value is not None}
    if callable(given.get("backoff")) and not isinstance(given["backoff"], Backoff):
        del given["backoff"]
    return given


def read_code_options(task: Any) -> dict[str, Any]:
    """Return the options of a task that have no column in the row."""
    found = {name: getattr(task, name) for name in CODE_OPTIONS if hasattr(task, name)}
    backoff = getattr(task, "backoff", None)
    if callable(backoff) and not isinstance(backoff, Backoff):
        found["backoff"] = backoff
    return found


def check_options(task: Any) -> None:
    """Raise InvalidTask if an option of a task has an invalid value."""
    try:
        read_job_options(read_row_options(task))
        if getattr(task, "backoff", None) is not None:
            read_backoff(task.backoff)
        if (delay := getattr(task, "delay", None)) is not None:
            read_job_options({"delay": delay})
    except InvalidOption as error:
        raise InvalidTask(str(error)) from error


def describe_differences(task: Any, declared: Any) -> list[str]:
    """Return the names of the code options in which two tasks differ."""
    ours, theirs = read_code_options(task), read_code_options(declared)
    names = sorted({*ours, *theirs})
    # A plain Task of Django has no such fields; that equals an empty value.
    return [n for n in names if (ours.get(n) or None) != (theirs.get(n) or None)]
