"""One attempt: resolve the handler, call it, judge how it ended. The write is finish's.

Called by the job threads and, in its async form, by the event loop. The only place that
catches broadly: whatever a handler raises, sys.exit() included, ends its attempt and
nothing else.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from ..context import JobContext
from ..exceptions import Interruption, JobTimeout
from ..failures import Failure, describe_exception
from ..handlers import Handler
from ..lifecycle.claim import Claim
from ..lifecycle.database import Database
from ..lifecycle.endings import Ending
from ..lifecycle.finish import finish_in_transaction
from ..lifecycle.reconcile import is_owned
from ..options import Options
from ..outcomes import (
    Cancelled,
    Died,
    GivenBack,
    Outcome,
    Succeeded,
    is_cancelled_sql,
    is_conflict,
    judge,
    load_backoff,
)
from ..payloads import dump_result
from ..registry import find_handler
from ..states import AttemptOutcome, DeadReason
from .connections import tidy_connections
from .held import HeldJob

# How often an atomic job runs again because transactions got in each other's way.
RERUNS = 5

# What log records of a handler's own say of the job they were written in.
current_claim: ContextVar[Claim | None] = ContextVar("jobqueue_claim", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What every attempt of this worker works with."""

    options: Options
    worker_id: UUID
    report_progress: Callable[[Claim, dict[str, Any]], None]
    report_started: Callable[[Claim], None]
    # Whether our heartbeat is overdue: then nothing is begun.
    is_fenced: Callable[[], bool] = lambda: False


def run_attempt(held: HeldJob, bench: Bench) -> Ending:
    """Run one attempt of a sync handler in this thread. Never raises."""
    try:
        return _run_attempt(held, bench)
    except BaseException as error:
        return _give_up(held, error)


async def arun_attempt(held: HeldJob, bench: Bench) -> Ending:
    """Run one attempt of an async handler on the event loop. Never raises."""
    try:
        return await _arun_attempt(held, bench)
    except BaseException as error:
        return _give_up(held, error)


def _give_up(held: HeldJob, error: BaseException) -> Ending:
    """End an attempt that could not even be judged, such as one of a row written by
    hand: a thread that died of it would take its slot along, and the job for ever."""
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
    if handler.needs_context:
        context = make_context(held, handler, bench, timeout=timeout)
    # Before the job too: a connection may have died while the thread was idle.
    tidy_connections()
    error: BaseException | None = None
    outcome: Outcome = Succeeded()
    is_written = False
    current_claim.set(claim)
    held.enter(timeout=timeout.total_seconds())
    try:
        try:
            outcome, is_written = _call(held, handler, context, bench)
        finally:
            held.leave()
    except BaseException as caught:
        held.leave()
        error = caught
    current_claim.set(None)
    ran = time.monotonic() - (held.started or 0.0)
    if error is not None and held.interruption is not None and is_cancelled_sql(error):
        # The cancelled query came back before the exception got through.
        error = held.interruption().with_traceback(error.__traceback__)
    if error is not None:
        outcome = judge_error(error, handler, claim, bench.options)
    is_suspect = isinstance(error, Interruption)
    del error  # its traceback holds the handler's frames
    tidy_connections(is_suspect=is_suspect)
    return Ending(
        claim=claim,
        outcome=outcome,
        started=held.started,
        ran=ran,
        is_written=is_written,
    )


async def _arun_attempt(held: HeldJob, bench: Bench) -> Ending:
    claim = held.claim
    handler = resolve(held, bench)
    if not isinstance(handler, Handler):
        return Ending(claim=claim, outcome=handler)
    timeout = find_timeout(handler, claim, bench.options)
    context = make_context(held, handler, bench, timeout=timeout)
    outcome: Outcome
    # Each task has a context of its own: nothing to take back.
    current_claim.set(claim)
    held.started = time.monotonic()
    try:
        outcome = await _acall(held, handler, context, timeout, bench)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            outcome = _judge_cancellation(held, error, handler, bench)
        else:
            outcome = judge_error(error, handler, claim, bench.options)
    ran = time.monotonic() - held.started
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
        return _judge_unknown(claim, bench.options)
    bench.report_started(claim)
    return handler


def find_timeout(
    handler: Handler[..., Any], claim: Claim, options: Options
) -> timedelta:
    return claim.timeout or handler.timeout or options.timeout


def make_context(
    held: HeldJob, handler: Handler[..., Any], bench: Bench, *, timeout: timedelta
) -> JobContext:
    claim = held.claim
    limit = claim.max_attempts or handler.max_attempts or bench.options.max_attempts
    return JobContext(
        job_id=claim.id,
        job_type=claim.job_type,
        attempt=claim.attempt,
        max_attempts=limit,
        deadline=timezone.now() + timeout,
        fence=claim.lease_token,
        _flags=held.flags,
        _is_owned=lambda: is_owned(
            Database(alias=bench.options.database), claim, worker_id=bench.worker_id
        ),
        _report=lambda progress: bench.report_progress(claim, progress),
    )


def judge_error(
    error: BaseException, handler: Handler[..., Any], claim: Claim, options: Options
) -> Outcome:
    backoff = None if claim.backoff is None else load_backoff(json.loads(claim.backoff))
    policy = handler.make_policy(
        options, max_attempts=claim.max_attempts, backoff=backoff
    )
    return judge(
        error,
        policy,
        attempt=claim.attempt,
        given_back=claim.given_back,
        job_type=claim.job_type,
    )


def _call(
    held: HeldJob,
    handler: Handler[..., Any],
    context: JobContext | None,
    bench: Bench,
) -> tuple[Outcome, bool]:
    """Call the handler, inside the transactions it asked for."""
    options, claim = bench.options, held.claim
    payload, args = _read_arguments(claim)
    if not handler.atomic and not handler.databases:
        result = handler.call(context, args, payload)
        return Succeeded(dump_result(result, limit=options.max_result_bytes)), False
    for reruns_left in reversed(range(RERUNS + 1)):
        try:
            return _call_in_transactions(held, handler, context, bench), handler.atomic
        except Exception as error:
            # All of it was rolled back, so it may run again at once and for free.
            if not (handler.atomic and is_conflict(error) and reruns_left):
                raise
    raise AssertionError("unreachable: the last run returns or raises")


def _call_in_transactions(
    held: HeldJob,
    handler: Handler[..., Any],
    context: JobContext | None,
    bench: Bench,
) -> Outcome:
    options, claim = bench.options, held.claim
    payload, args = _read_arguments(claim)
    with ExitStack() as transactions:
        # The jobs' database is entered first, so that it commits last.
        for alias in _order_databases(handler, options.database):
            transactions.enter_context(transaction.atomic(using=alias))
        result = handler.call(context, args, payload)
        outcome = Succeeded(dump_result(result, limit=options.max_result_bytes))
        if handler.atomic:
            ending = Ending(claim=claim, outcome=outcome, started=held.started)
            finish_in_transaction(
                Database(alias=options.database),
                ending,
                worker_id=bench.worker_id,
                options=options,
            )
    return outcome


def _read_arguments(claim: Claim) -> tuple[dict[str, Any], list[Any]]:
    args = [] if claim.args == "[]" else json.loads(claim.args)
    return {} if claim.payload == "{}" else json.loads(claim.payload), args


def _order_databases(handler: Handler[..., Any], jobs_alias: str) -> list[str]:
    aliases = list(handler.databases)
    if handler.atomic and jobs_alias not in aliases:
        aliases.append(jobs_alias)
    return sorted(aliases, key=lambda alias: alias != jobs_alias)


async def _acall(
    held: HeldJob,
    handler: Handler[..., Any],
    context: JobContext,
    timeout: timedelta,
    bench: Bench,
) -> Outcome:
    payload, args = _read_arguments(held.claim)
    try:
        async with asyncio.timeout(timeout.total_seconds()) as limit:
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
        return judge_error(held.interruption(), handler, held.claim, bench.options)
    if held.flags.stopping:
        return GivenBack(label=AttemptOutcome.RELEASED)
    return judge_error(error, handler, held.claim, bench.options)


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
