"""Options of one attempt: the job's value, then the handler's, then the setting's."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from ...backoff import Backoff, find_stored_backoff
from ...exceptions import JobTimeout
from ...handlers import Handler
from ...log_events import Event
from ...options import Options
from ...outcomes import Outcome, RetryPolicy, choose_delay, judge
from ...registry import find_handler
from ...storage.claims import Claim
from .in_flight import InFlightJob

logger = logging.getLogger("django_jobqueue.worker")


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
    return handler.make_policy(
        options,
        max_attempts=claim.max_attempts,
        backoff=find_stored_backoff(claim.backoff),
    )


def judge_error(
    error: BaseException, handler: Handler[..., Any], claim: Claim, options: Options
) -> Outcome:
    policy = make_policy(handler, claim, options)
    if claim.backoff is not None and find_stored_backoff(claim.backoff) is None:
        logger.warning(
            Event(
                "the backoff of a job cannot be read",
                job_id=claim.id,
                job_type=claim.job_type,
            )
        )
    return judge(
        error,
        policy,
        attempt=claim.attempt,
        given_back=claim.given_back,
        job_type=claim.job_type,
    )


def expected_retry_delay(job: InFlightJob, options: Options) -> float | None:
    """Return the seconds a job waits after a timeout; None if only user code knows.

    Called while the handler may be stuck: runs none of the user's code.
    """
    handler = find_handler(job.claim.job_type)
    if handler is None:
        return None
    policy = make_policy(handler, job.claim, options)
    if policy.retry_on or not isinstance(policy.backoff, Backoff):
        return None
    delay = choose_delay(JobTimeout(), policy, attempt=job.claim.attempt)
    return delay.total_seconds()
