"""The signals of a job's life.

job_log.py sends those of a worker, after the write that they report has committed;
storage/commit_signals.py sends those of a caller's transaction. Receivers get plain
values. An error in a receiver is logged and has no other effect.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

from django.dispatch import Signal

from .failures import KeptException, describe_exception
from .log_events import Event
from .outcomes import (
    Cancelled,
    Crashed,
    Died,
    GivenBack,
    Lost,
    Outcome,
    Retried,
    Succeeded,
)

if TYPE_CHECKING:
    from collections.abc import Callable

worker_logger = logging.getLogger("django_jobqueue.worker")

# Sent with job_id, job_type, queue and the values named in the comment.
job_enqueued = Signal()  # run_at
job_promoted = Signal()  # worker_id
# Sent with job_id, job_type, queue, attempt, worker_id and the values named.
job_started = Signal()
job_succeeded = Signal()  # duration
job_retried = Signal()  # error, delay, exception
job_given_back = Signal()  # outcome, error, delay
job_cancelled = Signal()  # reason
job_died = Signal()  # reason, error, exception
job_rescued = Signal()  # lost, owner, is_dead; a dead one sends job_died too
lease_lost = Signal()
# Sent with job_id, job_type, queue and run_at.
job_requeued = Signal()
# Sent once for each batch, with job_ids.
jobs_pruned = Signal()
# Sent with worker_id.
worker_started = Signal()
worker_stopped = Signal()

# How a signal is sent: send_signal(), or a thread of the worker that calls it.
Send: TypeAlias = "Callable[..., None]"


def send_signal(signal: Signal, **values: Any) -> None:
    """Send a signal from a thread of the worker; log what its receivers raise."""
    kept = values.get("exception")
    if isinstance(kept, KeptException):
        values["exception"] = kept.get()
    try:
        signal.send_robust(values.pop("sender", None), **values)
    # Django lets sys.exit() of a receiver through, which would end the thread.
    except BaseException as error:
        reason = describe_exception(error).short
        worker_logger.error(Event("a receiver of a signal failed", error=reason))
    finally:
        values.pop("exception", None)
        if isinstance(kept, KeptException):
            kept.free()


def has_receivers(outcome: Outcome) -> bool:
    """Return whether a receiver gets the exception of an attempt with this outcome."""
    match outcome:
        case Retried():
            return bool(job_retried.receivers)
        case Died():
            return bool(job_died.receivers)
        case Succeeded() | GivenBack() | Crashed() | Lost() | Cancelled():
            return False
        case _:
            assert_never(outcome)
