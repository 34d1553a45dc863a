"""assert_enqueued() and refute_enqueued(): what was enqueued, and what was not.

They look at the jobs in the database, whatever has become of them, or at those of
capture_jobs(). A failure shows what was enqueued instead, the closest first.
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

SHOWN = 10


class _Unset:
    """Not given: None is a value, of unique_key for one."""

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
    the keys they have, in nested objects too; `tags` are those it must have, `delay` is
    counted from the enqueue. `among` is a list of jobs to look at, such as that of
    capture_jobs(); None: all jobs in the database, run and dead ones included.
    """
    wish = _Wish(handler, _pick(locals()))
    known = _list_jobs() if among is None else list(among)
    found = [job for job in known if wish.is_met_by(job)]
    if not found and count != 0:
        raise AssertionError(f"No {wish} was enqueued.{wish.show(known)}")
    if count is not None and len(found) != count:
        raise AssertionError(
            f"{_count(len(found), wish)} enqueued, not {count}.{wish.show(known)}"
        )
    return found


def refute_enqueued(
    handler: Any, *, among: Iterable[JobRecord] | None = None, **wishes: Any
) -> None:
    """Assert that no such job was enqueued; takes what assert_enqueued() takes."""
    if "count" in wishes:
        raise TypeError(
            "refute_enqueued() takes no count: none is what it asserts. "
            "Use assert_enqueued(…, count=…)."
        )
    if unknown := wishes.keys() - _CHECKS.keys():
        raise TypeError(
            f"refute_enqueued() has no option {sorted(unknown)[0]!r}; there are "
            f"{', '.join(_CHECKS)} and among."
        )
    wish = _Wish(handler, wishes)
    known = _list_jobs() if among is None else list(among)
    found = [job for job in known if wish.is_met_by(job)]
    if found:
        raise AssertionError(
            f"{_count(len(found), wish)} enqueued, and none should be."
            f"{wish.show(found)}"
        )


async def aassert_enqueued(handler: Any, **options: Any) -> list[JobRecord]:
    """See assert_enqueued(); for async tests."""
    return await sync_to_async(assert_enqueued)(handler, **options)


async def arefute_enqueued(handler: Any, **options: Any) -> None:
    """See refute_enqueued(); for async tests."""
    await sync_to_async(refute_enqueued)(handler, **options)


def _pick(given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: given[name] for name in _CHECKS if given.get(name, UNSET) is not UNSET
    }


def _count(number: int, wish: _Wish) -> str:
    return f"{number} {wish} {'was' if number == 1 else 'were'}"


def _list_jobs() -> list[JobRecord]:
    alias = get_options().database
    live: list[JobRecord] = list(Job.objects.using(alias))
    dead: list[JobRecord] = list(DeadJob.objects.using(alias))
    return sorted([*live, *dead], key=lambda job: job.pk)


class _Wish:
    """What a test expects of a job."""

    def __init__(self, handler: Any, wishes: dict[str, Any]) -> None:
        self.job_type = name_job_type(handler)
        self.wishes = wishes

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.wishes.items())
        return f"{self.job_type} with {shown}" if shown else self.job_type

    def is_met_by(self, job: JobRecord) -> bool:
        return job.job_type == self.job_type and not self.find_faults(job)

    def find_faults(self, job: JobRecord) -> list[str]:
        """Name the wishes that a job does not meet."""
        return [
            name for name, value in self.wishes.items() if not _CHECKS[name](job, value)
        ]

    def show(self, jobs: list[JobRecord]) -> str:
        """List jobs below each other, the closest first."""
        if not jobs:
            return " There are no jobs at all."
        lines = [f"\n  {self._describe(job)}" for job in sorted(jobs, key=self._miss)]
        left = len(lines) - SHOWN
        more = f"\n  and {left} more" if left > 0 else ""
        head = " There is:" if len(jobs) == 1 else f" There are {len(jobs)} jobs:"
        return "".join([head, *lines[:SHOWN], more])

    def _miss(self, job: JobRecord) -> tuple[bool, int]:
        return job.job_type != self.job_type, len(self.find_faults(job))

    def _describe(self, job: JobRecord) -> str:
        """Describe a job by what everybody asks for, and by what was wished."""
        names = ["queue", "payload"]
        names += [_COLUMNS.get(name, name) for name in self.wishes]
        shown = " ".join(
            f"{name}={_read(job, name)!r}" for name in dict.fromkeys(names)
        )
        wrong = self.find_faults(job)
        if job.job_type != self.job_type:
            wrong = []
        hint = f" (not {', '.join(wrong)})" if wrong else ""
        return f"{job.job_type} {shown}{hint}"


# The columns behind the wishes, where they have other names.
_COLUMNS = {
    "payload__contains": "payload",
    "meta__contains": "meta",
}


def _read(job: JobRecord, name: str) -> Any:
    if name == "delay":
        return job.run_at - job.created_at
    if name == "status":
        # A dead job has none.
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
