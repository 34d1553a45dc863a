"""What finish writes for each outcome, as plain values; shared by its two versions."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TypeAlias, assert_never
from uuid import UUID

from ..failures import UNSTORABLE, Failure
from ..outcomes import (
    Cancelled,
    Crashed,
    Died,
    GivenBack,
    Outcome,
    Retried,
    Succeeded,
)
from ..states import AttemptOutcome, JobStatus
from .claim import Claim

# (id, queue and rank if it became pending) of the rows that a statement wrote.
Written: TypeAlias = list[tuple[UUID, str | None, int | None]]


@dataclass(slots=True, kw_only=True)
class Ending:
    """One attempt that ended, to be written."""

    claim: Claim
    outcome: Outcome
    # time.monotonic() when the handler was called; None: it never was.
    started: float | None = None
    # Seconds inside the handler.
    ran: float = 0.0
    # The handler's own transaction has written it: only to be told of.
    is_written: bool = False
    # Written by somebody else than the attempt, the supervisor: the token is raised,
    # so that whatever the attempt itself still writes is refused.
    is_taken: bool = False

    @property
    def is_quick(self) -> bool:
        """Whether nothing but the success is to be written: the usual case.

        After an earlier claim (token above 1) the job has a history that goes on, and
        it may be suspected of a crash.
        """
        return (
            type(self.outcome) is Succeeded
            and not self.outcome.note
            and not self.is_taken
            and self.claim.lease_token == 1
        )

    @property
    def label(self) -> str:
        """How the attempt ended, as Attempt.outcome has it."""
        outcome = self.outcome
        return (outcome if isinstance(outcome, Died) else plan_move(outcome)).label

    def is_same_end(self, token: int, taken: str | None) -> bool:
        """Tell whether a job that bears `token` now has ended by this very ending.

        `taken` is the outcome noted under the token before that one. A taken attempt
        that ended under its own token has ended by itself.
        """
        if not self.is_taken:
            return token == self.claim.lease_token
        return token == self.claim.lease_token + 1 and taken == self.label

    @property
    def age(self) -> float | None:
        """Seconds since the handler was called; database time less this: its start."""
        return None if self.started is None else time.monotonic() - self.started


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The columns that change when an attempt ends without death."""

    status: str
    label: str
    delay: timedelta | None = None
    # 1: the attempt does not count.
    refund: int = 0
    # 1: counts against the limit of forgiven trouble.
    trouble: int = 0
    # 1: one more crash, and the job is a suspect.
    crash: int = 0
    is_unknown: bool = False
    result: str | None = None
    error: str = ""
    failure: Failure = field(default_factory=Failure)


def plan_move(outcome: Succeeded | Retried | GivenBack | Crashed | Cancelled) -> Move:
    """Say which columns an outcome changes."""
    match outcome:
        case Succeeded():
            return Move(
                status=JobStatus.SUCCEEDED,
                label=AttemptOutcome.SUCCEEDED,
                result=outcome.result,
                error=outcome.note,
                failure=Failure(message=outcome.note),
            )
        case Retried():
            return Move(
                status=JobStatus.SCHEDULED if outcome.delay else JobStatus.PENDING,
                label=outcome.label,
                delay=outcome.delay,
                error=outcome.failure.short,
                failure=outcome.failure,
            )
        case GivenBack():
            return Move(
                status=JobStatus.SCHEDULED if outcome.delay else JobStatus.PENDING,
                label=outcome.label,
                delay=outcome.delay,
                refund=1,
                trouble=int(outcome.is_trouble),
                is_unknown=outcome.label == AttemptOutcome.UNKNOWN_HANDLER,
                error=outcome.failure.short,
                failure=outcome.failure,
            )
        case Crashed():
            return Move(
                status=JobStatus.SCHEDULED,
                label=AttemptOutcome.CRASHED,
                delay=outcome.delay,
                refund=int(not outcome.is_alone),
                crash=1,
                error=outcome.failure.short,
                failure=outcome.failure,
            )
        case Cancelled():
            return Move(
                status=JobStatus.CANCELLED,
                label=AttemptOutcome.CANCELLED,
                error=outcome.reason,
                failure=Failure(message=outcome.reason),
            )
        case _:
            assert_never(outcome)


def clears_suspicion(label: str) -> bool:
    """Tell whether such an end shows that the job does not kill its process.

    A released job may not have run at all, one without a handler surely has not: what
    was known of it stays.
    """
    return label not in {
        AttemptOutcome.CRASHED,
        AttemptOutcome.RELEASED,
        AttemptOutcome.UNKNOWN_HANDLER,
    }


def simplify(ending: Ending) -> Ending:
    """Return the ending with constant texts: the database refused the real ones."""
    outcome: Outcome
    match ending.outcome:
        case Succeeded():
            outcome = Succeeded(None, note="The database refused the result.")
        case Retried() | GivenBack() | Crashed() | Died():
            outcome = replace(ending.outcome, failure=UNSTORABLE)
        case Cancelled():
            outcome = Cancelled("cancelled")
        case _:
            assert_never(ending.outcome)
    return replace(ending, outcome=outcome)


def retell(ending: Ending, status: str) -> Ending:
    """Return the ending of a row that had ended before, as the row tells it.

    The COMMIT of an atomic job may have come through although nobody heard of it.
    """
    if status == JobStatus.SUCCEEDED and not isinstance(ending.outcome, Succeeded):
        return replace(ending, outcome=Succeeded())
    return ending
