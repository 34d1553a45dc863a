"""Before the call: find the handler of a claimed job, or decide that it must not start.

Called by attempt.py. A job does not start if it was lost, cancelled or has expired in
the meantime, or if this worker does not know its handler.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from django.utils import timezone

from ...context import JobContext
from ...failures import Failure
from ...handlers import Handler
from ...options import Options
from ...outcomes import Cancelled, Died, GivenBack, Outcome
from ...registry import find_handler
from ...states import AttemptOutcome, DeadReason
from ...storage.claims import Claim
from ...storage.database import Database
from ...storage.lookups import is_task, read_meta
from ...storage.ownership import is_owned
from .attempt_env import AttemptEnv
from .in_flight import RELEASED, InFlightJob
from .policy import find_max_attempts, find_timeout

# The delays of a job whose handler this worker does not know.
FIRST_UNKNOWN_DELAY = timedelta(seconds=0.5)
MAX_UNKNOWN_DELAY = timedelta(seconds=30)
MIN_UNKNOWN_DELAY = timedelta(milliseconds=50)

CANCELLED_BEFORE_START = Cancelled("cancelled before it started")


class Prepared(NamedTuple):
    """An attempt whose handler was found, before the call."""

    handler: Handler[..., Any]
    # None if neither the handler nor a middleware needs it.
    context: JobContext | None
    timeout: timedelta
    max_attempts: int


def prepare(job: InFlightJob, env: AttemptEnv) -> Prepared | Outcome:
    """Return what the call needs, or the outcome of a job that must not start."""
    handler = _resolve(job, env)
    if not isinstance(handler, Handler):
        return handler
    timeout = find_timeout(handler, job.claim, env.options)
    context = None
    if handler.needs_context or env.options.middleware:
        context = _make_context(job, handler, env, timeout=timeout)
    return Prepared(
        handler=handler,
        context=context,
        timeout=timeout,
        max_attempts=find_max_attempts(handler, job.claim, env.options),
    )


def _resolve(job: InFlightJob, env: AttemptEnv) -> Handler[..., Any] | Outcome:
    """Return the handler, or the outcome of a job that must not start."""
    claim = job.claim
    if job.flags.lost:
        # See _judge_end() in attempt.py.
        return RELEASED
    if job.flags.cancelled:
        return CANCELLED_BEFORE_START
    if claim.is_expired:
        return Cancelled("expired")
    handler = find_handler(claim.job_type)
    if handler is None:
        # An import runs code of the project. At least 2: the attempt itself has not
        # started.
        job.reserve(most=max(2, claim.max_attempts or env.options.max_attempts))
        handler = _import_handler(claim, env.options)
        if handler is not None and handler.is_async:
            # This is a job thread. The handler is known now: the next claim runs it.
            return RELEASED
    if handler is None:
        return _judge_unknown(claim, env.options)
    env.report_started(claim)
    return handler


def _import_handler(claim: Claim, options: Options) -> Handler[..., Any] | None:
    """Find the handler of a django.tasks job whose module is not imported yet."""
    if not is_task(Database(alias=options.database), claim.id):
        return None
    from ...backend.handler import import_task

    return import_task(claim.job_type)


def _judge_unknown(claim: Claim, options: Options) -> Outcome:
    message = (
        f"No handler is registered for the job type {claim.job_type!r}. Is its app in "
        f"INSTALLED_APPS, and the handler in its `jobs` or `tasks` module? See "
        f"manage.py check."
    )
    failure = Failure(exception_class="UnknownJobType", message=message)
    since = claim.unknown_since
    waited = timedelta() if since is None else claim.claimed_at - since
    if waited >= options.unknown_handler_grace:
        return Died(
            reason=DeadReason.UNKNOWN_HANDLER,
            failure=failure,
            label=AttemptOutcome.UNKNOWN_HANDLER,
        )
    # Half a second first, then as long as it has waited: a worker of the new release
    # gets it soon, and a job that no worker knows is not claimed all the time.
    longest = min(options.unknown_handler_grace / 20, MAX_UNKNOWN_DELAY)
    delay = min(max(waited, FIRST_UNKNOWN_DELAY), longest)
    return GivenBack(
        label=AttemptOutcome.UNKNOWN_HANDLER,
        delay=max(delay, MIN_UNKNOWN_DELAY),
        failure=failure,
    )


def _make_context(
    job: InFlightJob,
    handler: Handler[..., Any],
    env: AttemptEnv,
    *,
    timeout: timedelta,
) -> JobContext:
    claim = job.claim
    return JobContext(
        job_id=claim.id,
        job_type=claim.job_type,
        attempt=claim.attempt,
        max_attempts=find_max_attempts(handler, claim, env.options),
        deadline=timezone.now() + timeout,
        fence=claim.lease_token,
        _flags=job.flags,
        _is_owned=lambda: is_owned(
            Database(alias=env.options.database), claim, worker_id=env.worker_id
        ),
        _report=partial(_report_progress, job, env),
        _read_meta=lambda: read_meta(Database(alias=env.options.database), claim.id),
    )


def _report_progress(
    job: InFlightJob, env: AttemptEnv, progress: dict[str, Any]
) -> None:
    # Before the finisher's lock is taken: a handler that does little else is hardly
    # ever where it may be interrupted.
    job.raise_undelivered()
    if job.keeps_snapshot:
        job.last_progress = progress
    else:
        env.report_progress(job.claim, progress)
