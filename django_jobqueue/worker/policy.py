"""What a handler, its job and the settings say together; the job has the first word."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from ..backoff import Backoff, load_backoff
from ..exceptions import JobTimeout
from ..handlers import Handler
from ..lifecycle.claim import Claim
from ..options import Options
from ..outcomes import Outcome, RetryPolicy, choose_delay, judge
from ..registry import find_handler
from .held import HeldJob


def find_timeout(
    handler: Handler[..., Any], claim: Claim, options: Options
) -> timedelta:
    return claim.timeout or handler.timeout or options.timeout


def find_max_attempts(
    handler: Handler[..., Any], claim: Claim, options: Options
) -> int:
    return claim.max_attempts or handler.max_attempts or options.max_attempts


def make_policy(
    handler: Handler[..., Any], claim: Claim, options: Options
) -> RetryPolicy:
    backoff = None if claim.backoff is None else load_backoff(json.loads(claim.backoff))
    return handler.make_policy(
        options, max_attempts=claim.max_attempts, backoff=backoff
    )


def judge_error(
    error: BaseException, handler: Handler[..., Any], claim: Claim, options: Options
) -> Outcome:
    return judge(
        error,
        make_policy(handler, claim, options),
        attempt=claim.attempt,
        given_back=claim.given_back,
        job_type=claim.job_type,
    )


def foresee_delay(held: HeldJob, options: Options) -> float | None:
    """Return the seconds a job waits after a time-out; None if only its own code knows.

    Asked while the handler may be stuck, so that none of the user's code is run.
    """
    handler = find_handler(held.claim.job_type)
    if handler is None:
        return None
    policy = make_policy(handler, held.claim, options)
    if policy.retry_on or not isinstance(policy.backoff, Backoff):
        return None
    delay = choose_delay(JobTimeout(), policy, attempt=held.claim.attempt)
    return delay.total_seconds()
