"""Endings that the supervisor writes for a child: which outcome each job gets.

Two cases: an attempt that did not stop in time, and the jobs of a child that has died.
Pure: decides only. SupervisorDb reads the jobs and writes the endings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from ...backoff import exponential, find_stored_backoff
from ...options import Options
from ...outcomes import CANCELLED_ERROR, Cancelled, Outcome, judge_crash, judge_overrun
from ...storage.endings import Ending
from ...storage.ownership import OwnedJob, make_claim
from ..running.in_flight import RELEASED
from .child import Child
from .deaths import Death
from .memory_values import InterruptReason, RunningAttempt

CANCELLED = Cancelled(CANCELLED_ERROR)


@dataclass(slots=True, kw_only=True)
class ChildWrite:
    """Endings to write on behalf of a child, tried until they are written."""

    child: Child
    # The attempts that did not stop in time. Of a dead child: those whose ends the
    # supervisor had not written yet when it died.
    overruns: Sequence[RunningAttempt]
    # None: the child lives, and only the overruns are written.
    death: Death | None = None
    # Monotonic: given up then, once the child has ended; other workers rescue the rest.
    # Never while a lock of another session is the only obstacle.
    deadline: float = 0.0
    # Monotonic: not tried before.
    next_try: float = 0.0
    has_failed: bool = False


def make_endings(
    owned: Iterable[OwnedJob], write: ChildWrite, options: Options
) -> list[Ending]:
    """Return the endings of those of the child's jobs that this write is about."""
    endings = []
    for job in owned:
        overrun = find_attempt(write.overruns, job)
        if overrun is not None:
            endings.append(
                _make_ending(job, overrun, _judge_overrun(job, overrun, options))
            )
        elif write.death is not None:
            attempt = find_attempt(write.death.attempts, job)
            outcome = _judge_death(job, attempt, write.death, options)
            endings.append(_make_ending(job, attempt, outcome))
    return endings


def find_attempt(
    attempts: Iterable[RunningAttempt], job: OwnedJob
) -> RunningAttempt | None:
    """Return the attempt at this job under its present lease token."""
    key = (job.id, job.lease_token)
    return next((each for each in attempts if (each.id, each.lease_token) == key), None)


def _make_ending(
    job: OwnedJob, attempt: RunningAttempt | None, outcome: Outcome
) -> Ending:
    return Ending(
        claim=make_claim(job),
        outcome=outcome,
        started=None if attempt is None else attempt.entered,
        is_taken=True,
    )


def _judge_death(
    job: OwnedJob, attempt: RunningAttempt | None, death: Death, options: Options
) -> Outcome:
    is_kept = (job.id, job.lease_token) in death.kept
    if death.cause is not None and (attempt is not None or is_kept):
        return _judge_crash(death.cause, job, attempt, death, options)
    is_last = attempt is not None and attempt.max_attempts == 1
    if is_kept or (is_last and not death.is_shutdown):
        # It has started and may not start again, whoever ended its process.
        return _judge_crash(death.exit, job, attempt, death, options)
    return _release_or_cancel(job)


def _judge_crash(
    cause: str,
    job: OwnedJob,
    attempt: RunningAttempt | None,
    death: Death,
    options: Options,
) -> Outcome:
    return judge_crash(
        cause,
        crashes=job.crashes,
        attempt=job.attempt,
        max_attempts=1 if attempt is None else attempt.max_attempts,
        max_crashes=options.max_crashes,
        is_alone=attempt is not None and len(death.attempts) == 1,
        job_type=job.job_type,
    )


def _judge_overrun(job: OwnedJob, attempt: RunningAttempt, options: Options) -> Outcome:
    if attempt.cause is InterruptReason.CANCELLED:
        # Asked to stop because of a cancel, or because its claim was taken for lost.
        return _release_or_cancel(job)
    is_outside = attempt.cause is not InterruptReason.TIMEOUT
    if is_outside and job.is_cancel_requested:
        return CANCELLED
    grace = options.grace
    return judge_overrun(
        attempt=job.attempt,
        max_attempts=attempt.max_attempts,
        delay=_find_delay(job, attempt, options),
        timeout=timedelta(seconds=attempt.limit - attempt.entered) - grace,
        grace=grace,
        job_type=job.job_type,
    )


def _release_or_cancel(job: OwnedJob) -> Outcome:
    return CANCELLED if job.is_cancel_requested else RELEASED


def _find_delay(job: OwnedJob, attempt: RunningAttempt, options: Options) -> timedelta:
    if attempt.delay is not None:
        return timedelta(seconds=attempt.delay)
    usual = exponential(options.backoff_base, options.backoff_cap)
    backoff = find_stored_backoff(job.backoff) or usual
    return backoff.delay(job.attempt, jitter=1)
