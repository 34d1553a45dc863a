"""What finish writes for each outcome, as plain values; shared by its two versions."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple, TypeAlias, assert_never
from uuid import UUID

from ..failures import UNSTORABLE, Failure, KeptException
from ..outcomes import (
    CANCELLED_ERROR,
    Cancelled,
    Crashed,
    Died,
    GivenBack,
    Lost,
    Outcome,
    Retried,
    Succeeded,
)
from ..states import AttemptOutcome, JobStatus
from .claims import Claim


class WrittenJob(NamedTuple):
    """A job that a statement of finish wrote; a row that it returned."""

    id: UUID
    # A JobStatus, or DEAD.
    status: str
    # Only if it became pending.
    queue: str | None = None
    rank: int | None = None
    # The id of its dead job.
    dead_id: UUID | None = None


Written: TypeAlias = list[WrittenJob]

# The most text in one statement: 450 MB of results took longer than its time-out.
MAX_STATEMENT_BYTES = 4_000_000


@dataclass(slots=True, kw_only=True)
class Ending:
    """One attempt that ended, to be written."""

    claim: Claim
    outcome: Outcome
    # time.monotonic() when the handler was called; None: it never was.
    started: float | None = None
    # Seconds inside the handler.
    ran: float = 0.0
    # The handler's own transaction has written it: only to be reported.
    is_written: bool = False
    # The supervisor or a rescue writes it: the token is raised, so that later writes of
    # the attempt itself are refused.
    is_taken: bool = False
    # A try to write it has failed: whether it was committed is not known.
    is_in_doubt: bool = False
    # What the attempt raised, if a receiver wants it.
    exception: KeptException | None = None
    # The id of its dead job, if another dead job had the id already; reported with it.
    new_dead_id: UUID | None = None

    @property
    def has_deleted(self) -> bool:
        """Whether this ending may have deleted a row that is gone: a success under
        RETENTION 0 whose reply was lost."""
        return self.is_in_doubt and isinstance(self.outcome, Succeeded)

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
        return plan_move(self.outcome).label

    def is_same_end(self, token: int, taken: str | None) -> bool:
        """Tell whether a job that has `token` now was ended by this ending.

        `taken` is the outcome noted under the token before that one. A taken attempt
        that ended under its own token was ended by itself.
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
    """The columns that change when an attempt ends and its job stays a live row."""

    status: str
    label: str
    delay: timedelta | None = None
    # 1: the attempt does not count.
    refund: int = 0
    # 1: counts against the limit of forgiven trouble.
    trouble: int = 0
    # 1: one more crash, and the job is a suspect.
    crash: int = 0
    # 1: one more worker was lost with it.
    loss: int = 0
    is_unknown: bool = False
    # Whether the job goes back to its place, because the worker gave it back or was
    # lost. Else it gets a new rank when it is pending again.
    keeps_rank: bool = False
    # Whether the handler ran far enough to reset the counts of losses and trouble.
    is_progress: bool = False
    result: str | None = None
    error: str = ""
    failure: Failure = field(default_factory=Failure)


# Given back by the worker, not by the handler.
_WITHOUT_FAULT = {AttemptOutcome.RELEASED, AttemptOutcome.UNKNOWN_HANDLER}
# The rank of a scheduled job that gets a new one when it is promoted.
NO_RANK = 0


def plan_move(outcome: Outcome) -> Move:
    """Return which columns an outcome changes.

    A death moves a job only if it was asked to stop: then it ends as cancelled.
    """
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
                keeps_rank=outcome.label in _WITHOUT_FAULT,
                is_progress=outcome.label == AttemptOutcome.SNOOZED,
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
        case Lost():
            return Move(
                status=JobStatus.SCHEDULED if outcome.delay else JobStatus.PENDING,
                label=AttemptOutcome.LOST,
                delay=outcome.delay,
                refund=1,
                loss=1,
                keeps_rank=True,
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
        case Died():
            return Move(
                status=JobStatus.CANCELLED,
                label=outcome.label,
                # A loss gives the attempt back: it may never have begun.
                refund=outcome.loss,
                crash=outcome.crash,
                loss=outcome.loss,
                error=CANCELLED_ERROR,
                failure=outcome.failure,
            )
        case _:
            assert_never(outcome)


class Unwritten(NamedTuple):
    """Endings of one statement that failed, and how."""

    endings: Sequence[Ending]
    error: Exception


def split_endings(
    endings: Sequence[Ending], *, most: int | None = None
) -> Iterator[Sequence[Ending]]:
    """Split endings for statements of MAX_STATEMENT_BYTES of text, and `most` of them.

    The attempts of one part are of different jobs: a statement names rows by id.
    """
    part: list[Ending] = []
    size = 0
    # First attempts are the usual case, and their jobs have no other attempt here.
    has_later = any(ending.claim.lease_token > 1 for ending in endings)
    ids: set[UUID] = set()
    for ending in endings:
        weight = _count_characters(ending)
        is_full = size + weight > MAX_STATEMENT_BYTES or len(part) == most
        if part and (is_full or (has_later and ending.claim.id in ids)):
            yield part
            part, size, ids = [], 0, set()
        part.append(ending)
        size += weight
        if has_later:
            ids.add(ending.claim.id)
    if part:
        yield part


def _count_characters(ending: Ending) -> int:
    outcome = ending.outcome
    if isinstance(outcome, Succeeded):
        return len(outcome.result) if outcome.result else 0
    if isinstance(outcome, Cancelled):
        return len(outcome.reason)
    return len(outcome.failure.message) + len(outcome.failure.traceback)


def find_state(error: BaseException) -> str:
    """Return the SQLSTATE of an error, Django's or the driver's; "" if it has none."""
    return getattr(error.__cause__ or error, "sqlstate", None) or ""


def is_refused_value(error: BaseException) -> bool:
    """Tell whether an error is about the values, so that constant texts may do.

    Not for errors of a user's trigger: the texts are kept until it accepts them.
    """
    cause = error.__cause__ or error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return bool(code != sqlite3.SQLITE_CONSTRAINT_TRIGGER)
    return find_state(error)[:2] in {"", "22", "23", "54"}


def clears_suspicion(label: str) -> bool:
    """Tell whether such an end shows that the job does not kill its process.

    A released job may not have run at all, one without a handler did not: the suspicion
    stays.
    """
    return label not in {
        AttemptOutcome.CRASHED,
        AttemptOutcome.LOST,
        AttemptOutcome.RELEASED,
        AttemptOutcome.UNKNOWN_HANDLER,
    }


def with_constant_texts(ending: Ending) -> Ending:
    """Return the ending with constant texts: the database refused the real ones."""
    outcome: Outcome
    match ending.outcome:
        case Succeeded():
            outcome = Succeeded(None, note="The database refused the result.")
        case Retried() | GivenBack() | Crashed() | Lost() | Died():
            outcome = replace(ending.outcome, failure=UNSTORABLE)
        case Cancelled():
            outcome = Cancelled("cancelled")
        case _:
            assert_never(ending.outcome)
    return replace(ending, outcome=outcome)


def as_written(ending: Ending, status: str, *, dead_id: UUID | None = None) -> Ending:
    """Return the ending as it was written: the row has `status`, and `dead_id` if dead.

    The COMMIT of an atomic job may have succeeded although its reply was lost. A job
    that was asked to stop is cancelled, however its attempt ended.
    """
    outcome = ending.outcome
    if status == JobStatus.SUCCEEDED and not isinstance(outcome, Succeeded):
        return replace(ending, outcome=Succeeded())
    if status == JobStatus.CANCELLED and not isinstance(outcome, Cancelled):
        return replace(ending, outcome=Cancelled(CANCELLED_ERROR))
    if dead_id not in {None, ending.claim.id}:
        return replace(ending, new_dead_id=dead_id)
    return ending
