"""What run_jobs() returns: the attempts it ran, and how each ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, overload
from uuid import UUID

from .selection import name_job_type


@dataclass(frozen=True, slots=True, kw_only=True)
class RanAttempt:
    """One attempt that run_jobs() ran, and how it ended."""

    job_id: UUID
    job_type: str
    queue: str
    # The number of the attempt, from 1.
    attempt: int
    # A value of AttemptOutcome; "lost" if the end was refused.
    outcome: str
    # What the handler returned, after a round trip through JSON.
    result: Any = None
    error: str = ""
    # What the handler raised, Snooze and the like included.
    exception: BaseException | None = None
    # The job is dead.
    is_dead: bool = False
    # The time until the next attempt; None: there is none, or it is due already.
    delay: timedelta | None = None


@dataclass(frozen=True, slots=True)
class RanJobs(Sequence[RanAttempt]):
    """The attempts of one run_jobs(), in the order they ran."""

    attempts: tuple[RanAttempt, ...] = ()

    @property
    def job_ids(self) -> list[UUID]:
        return [ran.job_id for ran in self.attempts]

    @property
    def job_types(self) -> list[str]:
        return [ran.job_type for ran in self.attempts]

    @property
    def outcomes(self) -> list[str]:
        return [ran.outcome for ran in self.attempts]

    @property
    def results(self) -> list[Any]:
        """The results of the attempts that succeeded."""
        return [ran.result for ran in self.attempts if ran.outcome == "succeeded"]

    def of(self, handler: Any) -> RanJobs:
        """Return the attempts of one handler, given as a handler or by name."""
        wanted = name_job_type(handler)
        return RanJobs(tuple(ran for ran in self if ran.job_type == wanted))

    def __len__(self) -> int:
        return len(self.attempts)

    def __iter__(self) -> Iterator[RanAttempt]:
        return iter(self.attempts)

    @overload
    def __getitem__(self, index: int) -> RanAttempt: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RanAttempt, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.attempts[index]
