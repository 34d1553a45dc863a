"""One attempt: prepare it, call the handler, judge how it ended. Finish writes the end.

Called by the job threads and, in its async form, by the event loop. The only place that
catches broadly: whatever a handler raises, sys.exit() included, ends its attempt and
nothing else.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import Any

from ...context import JobContext
from ...exceptions import Interruption, JobCancelled, JobTimeout
from ...failures import KeptException, clear_frames, describe_exception, is_kind
from ...handlers import Handler
from ...middleware import acall_through
from ...outcomes import Died, Outcome, Succeeded
from ...payloads import dump_result
from ...signals import has_receivers
from ...states import DeadReason
from ...storage.claims import Claim
from ...storage.endings import Ending
from ..supervision.memory_values import InterruptReason
from .attempt_env import AttemptEnv
from .call import read_arguments, run_handler
from .forked import EndCopies
from .in_flight import RELEASED, InFlightJob
from .policy import judge_error
from .prepare import CANCELLED_BEFORE_START, Prepared, prepare

# The job that log records of a handler's code belong to.
current_claim: ContextVar[Claim | None] = ContextVar("jobqueue_claim", default=None)


def run_attempt(job: InFlightJob, env: AttemptEnv) -> Ending:
    """Run one attempt of a sync handler in this thread. Never raises."""
    try:
        return _run_attempt(job, env)
    except BaseException as error:
        return give_up(job, error, env)


async def arun_attempt(job: InFlightJob, env: AttemptEnv) -> Ending:
    """Run one attempt of an async handler on the event loop. Never raises."""
    try:
        return await _arun_attempt(job, env)
    except BaseException as error:
        return give_up(job, error, env)


def end_unstarted(job: InFlightJob) -> Ending:
    """End an attempt whose task was cancelled before its first step."""
    outcome: Outcome = RELEASED
    if job.interruption is not None or job.flags.cancelled:
        outcome = CANCELLED_BEFORE_START
    return Ending(claim=job.claim, outcome=outcome)


def give_up(job: InFlightJob, error: BaseException, env: AttemptEnv) -> Ending:
    """End an attempt that could not be judged, such as one of a row written by hand.

    If its thread died of the error, the slot and the job would be lost for good.
    """
    env.report_error(error)
    failure = describe_exception(error, job_type=job.claim.job_type)
    outcome = Died(reason=DeadReason.EXCEPTION, failure=failure)
    return Ending(
        claim=job.claim,
        outcome=outcome,
        started=job.started,
        exception=_keep(error, outcome, env),
    )


def _run_attempt(job: InFlightJob, env: AttemptEnv) -> Ending:
    claim = job.claim
    prepared = prepare(job, env)
    if not isinstance(prepared, Prepared):
        return Ending(claim=claim, outcome=prepared)
    handler = prepared.handler
    if env.needs_tidying():
        # Before the job too: a connection may have died while the thread was idle.
        job.reserve(most=prepared.max_attempts, cause=InterruptReason.TIDYING)
        env.tidy()
    current_claim.set(claim)
    run = run_handler(
        job,
        handler,
        prepared.context,
        env,
        timeout=prepared.timeout,
        most=prepared.max_attempts,
    )
    current_claim.set(None)
    outcome, exception, is_suspect = run.outcome, None, False
    is_written = run.has_end and run.error is None
    if run.error is not None:
        outcome = _judge_end(job, run.error, handler, env)
        exception = _keep(run.error, outcome, env)
        is_suspect = is_kind(run.error, Interruption)
        run.error = None  # its traceback references the handler's frames
    env.tidy(is_suspect=is_suspect)
    return Ending(
        claim=claim,
        outcome=outcome,
        started=run.started,
        ran=run.ran,
        is_written=is_written,
        exception=exception,
    )


async def _arun_attempt(job: InFlightJob, env: AttemptEnv) -> Ending:
    claim = job.claim
    prepared = prepare(job, env)
    if not isinstance(prepared, Prepared):
        return Ending(claim=claim, outcome=prepared)
    handler, timeout = prepared.handler, prepared.timeout
    exception: KeptException | None = None
    current_claim.set(claim)
    job.enter_task(timeout=timeout.total_seconds(), most=prepared.max_attempts)
    try:
        outcome: Outcome = await _acall(job, handler, prepared.context, timeout, env)
    except BaseException as error:
        if is_kind(error, asyncio.CancelledError):
            outcome = _judge_cancellation(job, error, handler, env)
        else:
            outcome = _judge(error, handler, claim, env)
        exception = _keep(error, outcome, env)
    finally:
        job.leave()
        # A task has its own context, but a test may share its context with it.
        current_claim.set(None)
    return Ending(
        claim=claim,
        outcome=outcome,
        started=job.started,
        ran=time.monotonic() - (job.started or 0.0),
        exception=exception,
    )


def _keep(
    error: BaseException, outcome: Outcome, env: AttemptEnv
) -> KeptException | None:
    """Keep what was raised for the receivers of the end, if there are any.

    Without local variables: the handler's objects are freed here, in its own thread
    and before its limit.
    """
    if not has_receivers(outcome):
        return None
    if not env.keeps_locals:
        clear_frames(error)
    return KeptException(error)


async def _acall(
    job: InFlightJob,
    handler: Handler[..., Any],
    context: JobContext | None,
    timeout: timedelta,
    env: AttemptEnv,
) -> Outcome:
    payload, args = read_arguments(job.claim)
    middleware = env.options.middleware
    try:
        async with asyncio.timeout(timeout.total_seconds()) as limit:
            call = partial(_acall_handler, handler, context)
            if middleware and context is not None:
                result = await acall_through(
                    middleware, context, args, payload, call=call
                )
            else:
                result = await call(args, payload)
    except TimeoutError as error:
        if limit.expired():
            raise JobTimeout from error
        raise
    return Succeeded(dump_result(result, limit=env.options.max_result_bytes))


async def _acall_handler(
    handler: Handler[..., Any],
    context: JobContext | None,
    args: list[Any],
    payload: dict[str, Any],
) -> Any:
    with EndCopies():
        return await handler.call(context, args, payload)


def _judge_cancellation(
    job: InFlightJob,
    error: BaseException,
    handler: Handler[..., Any],
    env: AttemptEnv,
) -> Outcome:
    """Judge a task cancelled by Job.cancel(), by the shutdown or by the handler."""
    if job.interruption is not None:
        return _judge_end(job, job.interruption(), handler, env)
    if job.flags.stopping:
        return RELEASED
    return _judge(error, handler, job.claim, env)


def _judge_end(
    job: InFlightJob,
    error: BaseException,
    handler: Handler[..., Any],
    env: AttemptEnv,
) -> Outcome:
    """Judge what a handler raised, or what was raised in it from outside."""
    outcome = _judge(error, handler, job.claim, env)
    is_interrupted = is_kind(error, JobCancelled)
    # If the job was taken away, the fence refuses this outcome too; if not, the job
    # goes on, because it was not cancelled.
    return RELEASED if job.flags.lost and is_interrupted else outcome


def _judge(
    error: BaseException, handler: Handler[..., Any], claim: Claim, env: AttemptEnv
) -> Outcome:
    env.report_error(error)
    return judge_error(error, handler, claim, env.options)
