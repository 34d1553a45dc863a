"""How an attempt ended, and what that means for its job. Pure: no database, no clock.

worker/attempt.py asks judge() and backoff here, the supervisor judge_crash() and
judge_overrun(); lifecycle/finish.py writes what they say.
"""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias, TypeGuard, TypeVar

from django.db import DatabaseError, InterfaceError

from .backoff import Backoff, BackoffCallable, exponential, read_seconds
from .exceptions import (
    Cancel,
    Discard,
    JobCancelled,
    JobTimeout,
    RateLimited,
    Snooze,
)
from .failures import (
    Failure,
    clean_reason,
    describe_end,
    describe_exception,
    find_packages,
    name_class,
)
from .states import AttemptOutcome, DeadReason

# How often trouble that is not the job's fault is forgiven before it counts.
MAX_GIVEN_BACK = 20

E = TypeVar("E", bound=BaseException)


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned; `result` is JSON text, `note` says why it is missing."""

    result: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """The attempt failed and another one follows after `delay`."""

    delay: timedelta
    failure: Failure
    label: AttemptOutcome = AttemptOutcome.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenBack:
    """The attempt does not count. `delay` None: pending at once."""

    label: AttemptOutcome
    delay: timedelta | None = None
    failure: Failure = field(default_factory=Failure)
    # Database trouble is forgiven MAX_GIVEN_BACK times; a snooze for ever.
    is_trouble: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """The process died with this job inside its handler; it runs alone after `delay`.

    `is_alone`: no other job was inside a handler, so the attempt counts.
    """

    delay: timedelta
    failure: Failure
    is_alone: bool


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job ends as cancelled."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """The job goes to the dead letters."""

    reason: DeadReason
    failure: Failure
    label: AttemptOutcome = AttemptOutcome.FAILED
    # 1: by a crash, which is counted like the others.
    crash: int = 0


Outcome: TypeAlias = Succeeded | Retried | GivenBack | Crashed | Cancelled | Died
ExceptionClasses: TypeAlias = tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What a handler and its job say about failures."""

    max_attempts: int
    backoff: Backoff | BackoffCallable
    retry_on: dict[type[BaseException], Backoff | BackoffCallable | None] | None = None
    discard_on: ExceptionClasses = ()


def judge(
    error: BaseException,
    policy: RetryPolicy,
    *,
    attempt: int,
    given_back: int = 0,
    job_type: str = "",
) -> Outcome:
    """Decide what becomes of a job whose attempt number `attempt` raised `error`."""
    if is_kind(error, Snooze):
        failure = Failure(message=clean_reason(error.reason))
        label = AttemptOutcome.SNOOZED
        return GivenBack(label=label, delay=error.delay, failure=failure)
    if is_kind(error, RateLimited):
        failure = Failure(message=clean_reason(error.reason))
        label = AttemptOutcome.DEFERRED
        return GivenBack(label=label, delay=error.delay, failure=failure)
    if is_kind(error, Cancel):
        return Cancelled(clean_reason(error.reason))
    if is_kind(error, JobCancelled):
        return Cancelled("cancelled while running")
    failure = describe_exception(error, job_type=job_type)
    if is_kind(error, Discard) or _is_permanent(error, policy):
        label = AttemptOutcome.DISCARDED
        return Died(reason=DeadReason.DISCARDED, failure=failure, label=label)
    if is_database_trouble(error) and given_back < MAX_GIVEN_BACK:
        return GivenBack(
            label=AttemptOutcome.RELEASED,
            delay=exponential(0.1, 60).delay(given_back + 1, jitter=random.random()),
            failure=failure,
            is_trouble=True,
        )
    is_timeout = is_kind(error, JobTimeout)
    label = AttemptOutcome.TIMEOUT if is_timeout else AttemptOutcome.FAILED
    if attempt < policy.max_attempts:
        delay = choose_delay(error, policy, attempt=attempt)
        return Retried(delay=delay, failure=failure, label=label)
    reason = DeadReason.TIMEOUT if is_timeout else DeadReason.EXCEPTION
    return Died(reason=reason, failure=failure, label=label)


def judge_crash(
    cause: str,
    *,
    crashes: int,
    attempt: int,
    max_attempts: int,
    max_crashes: int,
    is_alone: bool,
    job_type: str = "",
) -> Crashed | Died:
    """Decide what becomes of a job that was inside a handler when its process died.

    `crashes` is the count before this one; `cause` a text such as "killed by SIGSEGV"
    or "exited with code 3".
    """
    lodger = "this job and nothing else" if is_alone else "this job"
    message = f"The process that ran {lodger} died: {cause}."
    failure = describe_end("WorkerCrashed", message, job_type=job_type, place=cause)
    is_used_up = is_alone and attempt >= max_attempts
    # One attempt is a promise of at most one start.
    if crashes + 1 >= max_crashes or max_attempts == 1 or is_used_up:
        label = AttemptOutcome.CRASHED
        return Died(reason=DeadReason.CRASHED, failure=failure, label=label, crash=1)
    delay = exponential(1, 300).delay(crashes + 1, jitter=random.random())
    return Crashed(delay=delay, failure=failure, is_alone=is_alone)


def judge_overrun(
    *,
    attempt: int,
    max_attempts: int,
    delay: timedelta | None,
    timeout: timedelta,
    grace: timedelta,
    job_type: str = "",
) -> Retried | Died:
    """Decide what becomes of a job that did not stop at its time-out.

    `delay` None: nobody knows the handler's backoff, the usual one is taken.
    """
    message = (
        f"The attempt took longer than {timeout.total_seconds():g} s and did not stop "
        f"within {grace.total_seconds():g} s after that; its process was replaced."
    )
    name = name_class(JobTimeout)
    failure = describe_end(name, message, job_type=job_type, place="overrun")
    label = AttemptOutcome.TIMEOUT
    if attempt >= max_attempts:
        return Died(reason=DeadReason.TIMEOUT, failure=failure, label=label)
    if delay is None:
        delay = exponential().delay(attempt, jitter=random.random())
    return Retried(delay=delay, failure=failure, label=label)


def choose_delay(
    error: BaseException, policy: RetryPolicy, *, attempt: int
) -> timedelta:
    """Return the delay before the next attempt; a failing callable is passed over."""
    backoff = _find_backoff(error, policy)
    if isinstance(backoff, Backoff):
        return backoff.delay(attempt, jitter=random.random())
    try:
        answer = backoff(attempt, error)
        return read_seconds(answer) if answer is not None else timedelta()
    # The user's callable: whatever it does, the failure must be recorded.
    except BaseException:
        return exponential().delay(attempt, jitter=random.random())


def is_kind(
    error: BaseException | None, kinds: type[E] | tuple[type[E], ...]
) -> TypeGuard[E]:
    """Tell what an error really is, as `except` does.

    isinstance() would ask the error's own __class__, and that may lie, or raise.
    """
    return issubclass(type(error), kinds)


def is_database_trouble(error: BaseException) -> bool:
    """Tell whether the database failed, not the job: connection, pool, conflict.

    Knows both Django's errors and those of the worker's own connections.
    """
    cause = _find_driver_error(error)
    packages = find_packages(cause)
    if "psycopg_pool" in packages:
        return True
    if "sqlite3" in packages:
        code = getattr(cause, "sqlite_errorcode", None) or 0
        return code & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
    if "psycopg" not in packages:
        return False
    names = {cls.__name__ for cls in type(cause).__mro__}
    if not names & {"OperationalError", "InterfaceError"}:
        return False
    # psycopg raises OperationalError without a state when the connection is gone.
    state = getattr(cause, "sqlstate", None) or "08000"
    return state in {"40001", "40P01", "53300"} or state.startswith(("08", "57P"))


def is_conflict(error: BaseException) -> bool:
    """Tell whether transactions got in each other's way: run it again at once."""
    cause = _find_driver_error(error)
    if "psycopg" not in find_packages(cause):
        return False
    return getattr(cause, "sqlstate", None) in {"40001", "40P01"}


def is_cancelled_sql(error: BaseException) -> bool:
    """Tell whether somebody cancelled the query that raised this."""
    cause = _find_driver_error(error)
    packages = find_packages(cause)
    if "sqlite3" in packages:
        return getattr(cause, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
    return "psycopg" in packages and getattr(cause, "sqlstate", None) == "57014"


def _find_driver_error(error: BaseException) -> BaseException | None:
    """Return what the driver raised: Django's own errors have it as their cause."""
    is_djangos = is_kind(error, (DatabaseError, InterfaceError))
    return error.__cause__ if is_djangos else error


def _is_permanent(error: BaseException, policy: RetryPolicy) -> bool:
    if is_kind(error, policy.discard_on):
        return True
    if policy.retry_on is None or is_kind(error, JobTimeout):
        return False
    is_named = is_kind(error, tuple(policy.retry_on))
    return not is_named and not is_database_trouble(error)


def _find_backoff(
    error: BaseException, policy: RetryPolicy
) -> Backoff | BackoffCallable:
    for cls, backoff in (policy.retry_on or {}).items():
        if is_kind(error, cls) and backoff is not None:
            return backoff
    return policy.backoff
