"""assert_enqueued() and refute_enqueued(): which jobs were enqueued, and which not.

They search all jobs in the database, ended and dead ones included, or the list of
capture_jobs(). A failure shows the jobs that were enqueued, the closest match first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async

from ..models import DeadJob, Job
from ..models.record import JobRecord
from ..options import get_options
from .selection import name_job_type

MAX_SHOWN_JOBS = 10
# unittest cuts a traceback off at the first frame of such a module. pytest reads
# __tracebackhide__ in each function.
__unittest = True


class _Unset:
    """Not given. None cannot mean that: unique_key=None is a valid expectation."""

    def __repr__(self) -> str:
        return "…"


UNSET: Any = _Unset()


def assert_enqueued(
    handler: Any,
    *,
    count: int | None = None,
    queue: str = UNSET,
    priority: int = UNSET,
    payload: Mapping[str, Any] = UNSET,
    payload__contains: Mapping[str, Any] = UNSET,
    args: Iterable[Any] = UNSET,
    unique_key: str | None = UNSET,
    run_at: datetime = UNSET,
    delay: timedelta | float = UNSET,
    max_attempts: int | None = UNSET,
    expires_at: datetime | None = UNSET,
    tags: Iterable[str] = UNSET,
    meta__contains: Mapping[str, Any] = UNSET,
    status: str = UNSET,
    among: Iterable[JobRecord] | None = None,
) -> list[JobRecord]:
    """Assert that jobs of a handler were enqueued, and return them in that order.

    At least one, or exactly `count`. `payload__contains` and `meta__contains` compare
    only the given keys, in nested objects too. A job must have all of `tags`. `delay`
    is counted from the enqueue. `among` is the list of jobs to search, such as that of
    capture_jobs(); None: all jobs in the database, ended and dead ones included.
    """
    __tracebackhide__ = True
    expected = _ExpectedJob(handler, _pick(locals()))
    known = _list_jobs() if among is None else list(among)
    found = [job for job in known if expected.matches(job)]
    if not found and count != 0:
        raise AssertionError(f"No {expected} was enqueued.{expected.show(known)}")
    if count is not None and len(found) != count:
        raise AssertionError(
            f"{_count(len(found), expected)} enqueued, not {count}."
            f"{expected.show(known)}"
        )
    return found


def refute_enqueued(
    handler: Any, *, among: Iterable[JobRecord] | None = None, **values: Any
) -> None:
    """Assert that no such job was enqueued. Takes the options of assert_enqueued()."""
    __tracebackhide__ = True
    if "count" in values:
        raise TypeError(
            "refute_enqueued() takes no count, because it asserts that there is no "
            "such job. Use assert_enqueued(…, count=…)."
        )
    if unknown := values.keys() - _CHECKS.keys():
        raise TypeError(
            f"refute_enqueued() has no option {sorted(unknown)[0]!r}; known: "
            f"{', '.join(_CHECKS)} and among."
        )
    expected = _ExpectedJob(handler, values)
    known = _list_jobs() if among is None else list(among)
    found = [job for job in known if expected.matches(job)]
    if found:
        raise AssertionError(
            f"{_count(len(found), expected)} enqueued, but none was expected."
            f"{expected.show(found)}"
        )


async def aassert_enqueued(
    handler: Any, *, among: Iterable[JobRecord] | None = None, **options: Any
) -> list[JobRecord]:
    """See assert_enqueued(); for async tests."""
    __tracebackhide__ = True
    known = await sync_to_async(_list_jobs)() if among is None else among
    return assert_enqueued(handler, among=known, **options)


async def arefute_enqueued(
    handler: Any, *, among: Iterable[JobRecord] | None = None, **options: Any
) -> None:
    """See refute_enqueued(); for async tests."""
    __tracebackhide__ = True
    known = await sync_to_async(_list_jobs)() if among is None else among
    refute_enqueued(handler, among=known, **options)


def _pick(given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: given[name] for name in _CHECKS if given.get(name, UNSET) is not UNSET
    }


def _count(number: int, expected: _ExpectedJob) -> str:
    return f"{number} {expected} {'was' if number == 1 else 'were'}"


def _list_jobs() -> list[JobRecord]:
    alias = get_options().database
    live: list[JobRecord] = list(Job.objects.using(alias))
    dead: list[JobRecord] = list(DeadJob.objects.using(alias))
    return sorted([*live, *dead], key=lambda job: job.pk)


class _ExpectedJob:
    """The job type and the values that a test expects of a job."""

    def __init__(self, handler: Any, values: dict[str, Any]) -> None:
        self.job_type = name_job_type(handler)
        self.values = values

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"{self.job_type} with {shown}" if shown else self.job_type

    def matches(self, job: JobRecord) -> bool:
        return job.job_type == self.job_type and not self.find_mismatches(job)

    def find_mismatches(self, job: JobRecord) -> list[str]:
        """Return the names of the values that a job does not have."""
        return [
            name for name, value in self.values.items() if not _CHECKS[name](job, value)
        ]

    def show(self, jobs: list[JobRecord]) -> str:
        """Return one line per job, the closest match first."""
        if not jobs:
            return " There are no jobs at all."
        ordered = sorted(jobs, key=self._measure_distance)
        lines = [f"\n  {self._describe(job)}" for job in ordered]
        left = len(lines) - MAX_SHOWN_JOBS
        more = f"\n  and {left} more" if left > 0 else ""
        head = " There is:" if len(jobs) == 1 else f" There are {len(jobs)} jobs:"
        return "".join([head, *lines[:MAX_SHOWN_JOBS], more])

    def _measure_distance(self, job: JobRecord) -> tuple[bool, int]:
        return job.job_type != self.job_type, len(self.find_mismatches(job))

    def _describe(self, job: JobRecord) -> str:
        """Describe a job by queue, payload and the columns that were compared."""
        names = ["queue", "payload"]
        names += [_COLUMNS.get(name, name) for name in self.values]
        shown = " ".join(
            f"{name}={_read(job, name)!r}" for name in dict.fromkeys(names)
        )
        wrong = self.find_mismatches(job)
        if job.job_type != self.job_type:
            wrong = []
        hint = f" (not {', '.join(wrong)})" if wrong else ""
        return f"{job.job_type} {shown}{hint}"


# Option → column, where the names differ.
_COLUMNS = {
    "payload__contains": "payload",
    "meta__contains": "meta",
}


def _read(job: JobRecord, name: str) -> Any:
    if name == "delay":
        return job.run_at - job.created_at
    if name == "status":
        # A dead job has no status.
        return str(getattr(job, "status", "dead"))
    return getattr(job, name)


def _equals(name: str) -> Callable[[JobRecord, Any], bool]:
    return lambda job, wanted: bool(_read(job, name) == wanted)


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and all(
            key in value and _contains(value[key], each) for key, each in wanted.items()
        )
    return bool(value == wanted)


def _has_delay(job: JobRecord, wanted: Any) -> bool:
    delay = wanted if isinstance(wanted, timedelta) else timedelta(seconds=wanted)
    return bool(_read(job, "delay") == delay)


_CHECKS: dict[str, Callable[[JobRecord, Any], bool]] = {
    "queue": _equals("queue"),
    "priority": _equals("priority"),
    "payload": lambda job, wanted: bool(job.payload == dict(wanted)),
    "payload__contains": lambda job, wanted: _contains(job.payload, wanted),
    "args": lambda job, wanted: bool(job.args == list(wanted)),
    "unique_key": _equals("unique_key"),
    "run_at": _equals("run_at"),
    "delay": _has_delay,
    "max_attempts": _equals("max_attempts"),
    "expires_at": _equals("expires_at"),
    "tags": lambda job, wanted: set(_as_list(wanted)) <= set(job.tags),
    "meta__contains": lambda job, wanted: _contains(job.meta, wanted),
    "status": _equals("status"),
}


def _as_list(wanted: Any) -> list[str]:
    return [wanted] if isinstance(wanted, str) else list(wanted)
