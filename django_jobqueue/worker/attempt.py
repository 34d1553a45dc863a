"""One attempt: resolve the handler, call it, judge how it ended. The write is finish's.

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

from django.utils import timezone

from ..context import JobContext
from ..exceptions import Interruption, JobTimeout
from ..failures import Failure, describe_exception
from ..handlers import Handler
from ..lifecycle.claim import Claim
from ..lifecycle.database import Database
from ..lifecycle.endings import Ending
from ..lifecycle.find import is_task, read_meta
from ..lifecycle.reconcile import is_owned
from ..middleware import acall_through
from ..options import Options
from ..outcomes import (
    Cancelled,
    Died,
    GivenBack,
    Outcome,
    Succeeded,
    is_kind,
)
from ..payloads import dump_result
from ..registry import find_handler
from ..states import AttemptOutcome, DeadReason
from .bench import Bench
from .held import HeldJob
from .policy import find_max_attempts, find_timeout, judge_error
from .run import read_arguments, run_handler

# What log records of a handler's own say of the job they were written in.
current_claim: ContextVar[Claim | None] = ContextVar("jobqueue_claim", default=None)


def run_attempt(held: HeldJob, bench: Bench) -> Ending:
    """Run one attempt of a sync handler in this thread. Never raises."""
    try:
        return _run_attempt(held, bench)
    except BaseException as error:
        return _give_up(held, error, bench)


async def arun_attempt(held: HeldJob, bench: Bench) -> Ending:
    """Run one attempt of an async handler on the event loop. Never raises."""
    try:
        return await _arun_attempt(held, bench)
    except BaseException as error:
        return _give_up(held, error, bench)


def _give_up(held: HeldJob, error: BaseException, bench: Bench) -> Ending:
    """End an attempt that could not even be judged, such as one of a row written by
    hand: a thread that died of it would take its slot along, and the job for ever."""
    bench.report_error(error)
    failure = describe_exception(error, job_type=held.claim.job_type)
    outcome = Died(reason=DeadReason.EXCEPTION, failure=failure)
    return Ending(claim=held.claim, outcome=outcome, started=held.started)


def _run_attempt(held: HeldJob, bench: Bench) -> Ending:
    claim = held.claim
    handler = resolve(held, bench)
    if not isinstance(handler, Handler):
        return Ending(claim=claim, outcome=handler)
    timeout = find_timeout(handler, claim, bench.options)
    context = None
    if handler.needs_context or bench.options.middleware:
        context = make_context(held, handler, bench, timeout=timeout)
    # Before the job too: a connection may have died while the thread was idle.
    bench.tidy()
    current_claim.set(claim)
    run = run_handler(held, handler, context, bench, timeout=timeout)
    current_claim.set(None)
    outcome = run.outcome
    if run.error is not None:
        outcome = _judge(run.error, handler, claim, bench)
    is_suspect = is_kind(run.error, Interruption)
    is_written = run.has_end and run.error is None
    run.error = None  # its traceback holds the handler's frames
    bench.tidy(is_suspect=is_suspect)
    return Ending(
        claim=claim,
        outcome=outcome,
        started=run.started,
        ran=run.ran,
        is_written=is_written,
    )


async def _arun_attempt(held: HeldJob, bench: Bench) -> Ending:
    claim = held.claim
    handler = resolve(held, bench)
    if not isinstance(handler, Handler):
        return Ending(claim=claim, outcome=handler)
    timeout = find_timeout(handler, claim, bench.options)
    context = None
    if handler.needs_context or bench.options.middleware:
        context = make_context(held, handler, bench, timeout=timeout)
    outcome: Outcome
    current_claim.set(claim)
    most = find_max_attempts(handler, claim, bench.options)
    held.enter_task(timeout=timeout.total_seconds(), most=most)
    try:
        outcome = await _acall(held, handler, context, timeout, bench)
    except asyncio.CancelledError as error:
        outcome = _judge_cancellation(held, error, handler, bench)
    except BaseException as error:
        outcome = _judge(error, handler, claim, bench)
    finally:
        held.leave()
        # In a task of its own nobody would notice; a test may share its context.
        current_claim.set(None)
    ran = time.monotonic() - (held.started or 0.0)
    return Ending(claim=claim, outcome=outcome, started=held.started, ran=ran)


def resolve(held: HeldJob, bench: Bench) -> Handler[..., Any] | Outcome:
    """Find the handler, or the outcome of a job that is not to be started."""
    claim = held.claim
    if held.flags.cancelled:
        return Cancelled("cancelled before it started")
    if claim.is_expired:
        return Cancelled("expired")
    handler = find_handler(claim.job_type)
    if handler is None:
        handler = _import_handler(claim, bench.options)
        if handler is not None and handler.is_async:
            # We are in a thread. It is known from now on: the next claim runs it.
            return GivenBack(label=AttemptOutcome.RELEASED)
    if handler is None:
        return _judge_unknown(claim, bench.options)
    bench.report_started(claim)
    return handler


def _import_handler(claim: Claim, options: Options) -> Handler[..., Any] | None:
    """Find the handler of a django.tasks job whose module nobody has imported yet."""
    if not is_task(Database(alias=options.database), claim.id):
        return None
    from ..backend.handler import import_task

    return import_task(claim.job_type)


def make_context(
    held: HeldJob, handler: Handler[..., Any], bench: Bench, *, timeout: timedelta
) -> JobContext:
    claim = held.claim
    return JobContext(
        job_id=claim.id,
        job_type=claim.job_type,
        attempt=claim.attempt,
        max_attempts=find_max_attempts(handler, claim, bench.options),
        deadline=timezone.now() + timeout,
        fence=claim.lease_token,
        _flags=held.flags,
        _is_owned=lambda: is_owned(
            Database(alias=bench.options.database), claim, worker_id=bench.worker_id
        ),
        _report=lambda progress: bench.report_progress(claim, progress),
        _read_meta=lambda: read_meta(Database(alias=bench.options.database), claim.id),
    )


async def _acall(
    held: HeldJob,
    handler: Handler[..., Any],
    context: JobContext | None,
    timeout: timedelta,
    bench: Bench,
) -> Outcome:
    payload, args = read_arguments(held.claim)
    middleware = bench.options.middleware
    try:
        async with asyncio.timeout(timeout.total_seconds()) as limit:
            if middleware and context is not None:
                call = partial(handler.call, context)
                result = await acall_through(
                    middleware, context, args, payload, call=call
                )
            else:
                result = await handler.call(context, args, payload)
    except TimeoutError as error:
        if limit.expired():
            raise JobTimeout from error
        raise
    return Succeeded(dump_result(result, limit=bench.options.max_result_bytes))


def _judge_cancellation(
    held: HeldJob, error: BaseException, handler: Handler[..., Any], bench: Bench
) -> Outcome:
    """A cancelled task: by somebody's cancel(), by shutdown, or by its own doing."""
    if held.interruption is not None:
        return _judge(held.interruption(), handler, held.claim, bench)
    if held.flags.stopping:
        return GivenBack(label=AttemptOutcome.RELEASED)
    return _judge(error, handler, held.claim, bench)


def _judge(
    error: BaseException, handler: Handler[..., Any], claim: Claim, bench: Bench
) -> Outcome:
    bench.report_error(error)
    return judge_error(error, handler, claim, bench.options)


def _judge_unknown(claim: Claim, options: Options) -> Outcome:
    message = f"No handler is registered for the job type {claim.job_type!r}."
    failure = Failure(exception_class="UnknownJobType", message=message)
    since = claim.unknown_since
    waited = timedelta() if since is None else claim.claimed_at - since
    if waited >= options.unknown_handler_grace:
        return Died(
            reason=DeadReason.UNKNOWN_HANDLER,
            failure=failure,
            label=AttemptOutcome.UNKNOWN_HANDLER,
        )
    delay = min(options.unknown_handler_grace / 20, timedelta(seconds=30))
    return GivenBack(
        label=AttemptOutcome.UNKNOWN_HANDLER,
        delay=max(delay, timedelta(milliseconds=50)),
        failure=failure,
    )
