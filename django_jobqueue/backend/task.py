"""JobTask: a Task of django.tasks that carries what our jobs can do.

What stands in a row (attempts, time-out, key, …) may be said for each call with
`using()`; what only code can say (retry_on, atomic, …) belongs to the task itself.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from ..backoff import Backoff, read_backoff
from ..exceptions import InvalidOption
from ..handlers import RetryOn
from ..joboptions import read_job_options
from .api import InvalidTask, Task


class Moment(Enum):
    """What `using(run_after=…)` takes beside a datetime and a timedelta."""

    NOW = "now"


# using(run_after=NOW) takes back what an earlier using() said.
NOW = Moment.NOW

# A row has a column for each of these.
ROW_OPTIONS = (
    "max_attempts",
    "timeout",
    "backoff",
    "unique_key",
    "expires_at",
    "tags",
    "meta",
)
# Only code can say these.
CODE_OPTIONS = ("retry_on", "discard_on", "databases", "atomic")
_CORE = ("priority", "queue_name", "run_after", "backend")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask(Task):  # type: ignore[misc]
    """A task whose jobs can be retried, timed out, keyed and made atomic."""

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
    # From run_after=timedelta(…): counted from the enqueue, not from using().
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
        """Return this task with other options; None leaves one as it is.

        Beside Django's four it takes every option of a job. `run_after` may be a
        timedelta, counted from the enqueue, or NOW, which takes an earlier one back.
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
                raise TypeError(_describe_unknown(name))
        if isinstance(run_after, timedelta):
            changes |= {"run_after": None, "delay": run_after}
        elif run_after is NOW:
            changes |= {"run_after": None, "delay": None}
        elif run_after is not None:
            changes |= {"run_after": run_after, "delay": None}
        return replace(self, **changes)


def read_row_options(task: Any) -> dict[str, Any]:
    """Return what a task says that goes into the row; a core Task says nothing."""
    found = {name: getattr(task, name, None) for name in ROW_OPTIONS}
    given = {name: value for name, value in found.items() if value is not None}
    if callable(given.get("backoff")) and not isinstance(given["backoff"], Backoff):
        del given["backoff"]
    return given


def read_code_options(task: Any) -> dict[str, Any]:
    """Return what a task says that only code can say."""
    found = {name: getattr(task, name) for name in CODE_OPTIONS if hasattr(task, name)}
    backoff = getattr(task, "backoff", None)
    if callable(backoff) and not isinstance(backoff, Backoff):
        found["backoff"] = backoff
    return found


def check_options(task: Any) -> None:
    """Raise InvalidTask if an option of a task has a value that cannot be used."""
    try:
        read_job_options(read_row_options(task))
        if getattr(task, "backoff", None) is not None:
            read_backoff(task.backoff)
        if (delay := getattr(task, "delay", None)) is not None:
            read_job_options({"delay": delay})
    except InvalidOption as error:
        raise InvalidTask(str(error)) from error


def describe_differences(task: Any, declared: Any) -> list[str]:
    """Name the options that only code can say and in which two tasks differ."""
    ours, theirs = read_code_options(task), read_code_options(declared)
    names = sorted({*ours, *theirs})
    # A core Task has no such fields, and an empty one says as little.
    return [n for n in names if (ours.get(n) or None) != (theirs.get(n) or None)]


def _describe_unknown(name: str) -> str:
    known = [field.name for field in fields(JobTask)]
    known = [*_CORE, *(n for n in known if n in ROW_OPTIONS or n in CODE_OPTIONS)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}."
    return f"using() has no option {name!r}; {hint}"
