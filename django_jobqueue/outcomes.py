"""How an attempt ended, and what that means for its job. Pure: no database, no clock.

worker/running/attempt.py calls judge(), the supervisor judge_crash() and
judge_overrun(), rescue judge_loss(); lifecycle/finish.py writes the result.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from .backoff import Backoff, BackoffCallable, exponential, read_seconds
from .database_errors import is_database_trouble
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
    is_kind,
    name_class,
)
from .states import AttemptOutcome, DeadReason

LOST_MESSAGE = "The worker that ran this job stopped sending heartbeats."
# The error of a job that was asked to stop while it ran, however its attempt ended.
CANCELLED_ERROR = "cancelled while running"
# How often database trouble gives an attempt back before it counts.
MAX_GIVEN_BACK = 20


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned; `result` is JSON text, `note` says why it is missing."""

    result: str | None = None
    note: str = ""


# The usual outcome: nothing was returned.
SUCCEEDED = Succeeded()


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
    # Counts toward MAX_GIVEN_BACK. A snooze does not count.
    is_trouble: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """The process died with this job inside its handler; it runs alone after `delay`.

    `is_alone`: no other job was inside a handler, so the attempt counts.
    """

    delay: timedelta
    failure: Failure
    is_alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The worker stopped beating with this job claimed. `delay` None: pending at once.

    The attempt does not count: the handler may never have been called.
    """

    failure: Failure
    delay: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job ends as cancelled."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """The job becomes a dead job."""

    reason: DeadReason
    failure: Failure
    label: AttemptOutcome = AttemptOutcome.FAILED
    # 1: the death is one more crash, or one more loss.
    crash: int = 0
    loss: int = 0


Outcome: TypeAlias = Succeeded | Retried | GivenBack | Crashed | Lost | Cancelled | Died
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
        return Cancelled(CANCELLED_ERROR)
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
    """Decide what becomes of a job whose handler was running when its process died.

    `crashes` is the count before this one; `cause` a text such as "killed by SIGSEGV"
    or "exited with code 3".
    """
    jobs = "this job and nothing else" if is_alone else "this job"
    message = f"The process that ran {jobs} died: {cause}."
    failure = describe_end("WorkerCrashed", message, job_type=job_type, place=cause)
    is_used_up = is_alone and attempt >= max_attempts
    # One attempt is a promise of at most one start.
    if crashes + 1 >= max_crashes or max_attempts == 1 or is_used_up:
        label = AttemptOutcome.CRASHED
        return Died(reason=DeadReason.CRASHED, failure=failure, label=label, crash=1)
    delay = exponential(1, 300).delay(crashes + 1, jitter=random.random())
    return Crashed(delay=delay, failure=failure, is_alone=is_alone)


def judge_loss(
    *, lost: int, max_attempts: int, max_lost: int, job_type: str = ""
) -> Lost | Died:
    """Decide what becomes of a job whose worker stopped beating while it owned the job.

    `lost` is the count before this one. The first loss costs no time: it is usually a
    machine that went away. Later ones wait longer each time.
    """
    failure = describe_end("WorkerLost", LOST_MESSAGE, job_type=job_type, place="lost")
    # One attempt is a promise of at most one start.
    if lost + 1 >= max_lost or max_attempts == 1:
        label = AttemptOutcome.LOST
        return Died(reason=DeadReason.LOST, failure=failure, label=label, loss=1)
    delay = exponential(2, 300).delay(lost, jitter=1) if lost else None
    return Lost(failure=failure, delay=delay)


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

    `delay` None: the handler's backoff is unknown, the default one is used.
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
    """Return the delay before the next attempt; the default if a callable fails."""
    backoff = _find_backoff(error, policy)
    if isinstance(backoff, Backoff):
        return backoff.delay(attempt, jitter=random.random())
    try:
        answer = backoff(attempt, error)
        return read_seconds(answer) if answer is not None else timedelta()
    # Whatever the user's callable does, the failure must be recorded.
    except BaseException:
        return exponential().delay(attempt, jitter=random.random())


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
