"""The log lines and signals that report a job's life.

The worker calls these after the write that they report has committed, and outside the
`try` that judges the handler. No other module logs a job's life.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_never

from .failures import describe_exception
from .log_events import Event
from .outcomes import (
    Cancelled,
    Crashed,
    Died,
    GivenBack,
    Lost,
    Retried,
    Succeeded,
)
from .signals import (
    Send,
    job_cancelled,
    job_died,
    job_given_back,
    job_promoted,
    job_rescued,
    job_retried,
    job_started,
    job_succeeded,
    lease_lost,
    send_signal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from .failures import Failure
    from .lifecycle.promote import Promoted
    from .lifecycle.rescue import Rescued
    from .lifecycle.unreadable import UnreadableJob
    from .storage.claims import Claim
    from .storage.endings import Ending

logger = logging.getLogger("django_jobqueue.jobs")
worker_logger = logging.getLogger("django_jobqueue.worker")

# Above this many a second, a worker logs summaries instead of a line for each job.
LOUD_JOBS_PER_SECOND = 200


class JobLog:
    """Reports attempts; one for each worker. Their ends come from one thread only."""

    def __init__(
        self,
        worker_id: UUID,
        *,
        is_complete: bool,
        send: Send = send_signal,
        shows_traceback: Callable[[Ending], bool] = lambda ending: False,
    ) -> None:
        self.worker_id = worker_id
        self._send = send
        # Whether the traceback of a failed attempt is printed below its line.
        self._shows_traceback = shows_traceback
        # Log a line for every job, however many there are.
        self.is_complete = is_complete
        self._second = 0
        self._count = 0
        self._was_loud = False
        # job type → (count, seconds in all, longest)
        self._summary: dict[str, tuple[int, float, float]] = {}

    def report_started(self, claim: Claim) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(Event("job started", **self._describe(claim)))
        if job_started.receivers:
            self._send(job_started, **self._describe(claim))

    def report_ended(self, ending: Ending) -> None:
        """Report one attempt whose end was written."""
        match ending.outcome:
            case Succeeded():
                self._report_succeeded(ending)
            case (
                Retried(delay=delay, failure=failure)
                | Crashed(delay=delay, failure=failure)
            ):
                self._report_retried(ending, failure, delay)
            case GivenBack(delay=delay, failure=failure, label=label):
                self._report_given_back(ending, str(label), failure.short, delay)
            case Cancelled(reason=reason):
                fields = self._describe(ending.claim)
                logger.info(Event("job cancelled", **fields, reason=reason))
                self._send(job_cancelled, **fields, reason=reason)
            case Died(reason=reason, failure=failure):
                _report_shared_id(ending.claim.id, ending.new_dead_id)
                fields = self._describe(ending.claim)
                fields |= {"reason": str(reason), "error": failure.short}
                event = self._add_traceback(
                    Event("job dead", **fields), ending, failure
                )
                logger.error(event)
                self._send(job_died, **fields, exception=ending.exception)
            case Lost():
                # report_rescued() reports it: the worker that ran the job is gone.
                pass
            case _:
                assert_never(ending.outcome)

    def report_lost(self, claim: Claim, *, what: str) -> None:
        fields = self._describe(claim)
        logger.warning(Event("lease lost", **fields, refused=what))
        self._send(lease_lost, **fields)

    def flush(self, *, is_final: bool = False) -> None:
        """Write the summaries of a second that has passed."""
        second = int(time.monotonic())
        if second == self._second and not is_final:
            return
        for job_type, (count, total, longest) in sorted(self._summary.items()):
            logger.info(
                Event(
                    "jobs done",
                    job_type=job_type,
                    count=count,
                    mean=total / count,
                    longest=longest,
                    worker_id=self.worker_id,
                )
            )
        self._summary.clear()
        self._was_loud = self._count > LOUD_JOBS_PER_SECOND
        self._second, self._count = second, 0

    def _report_succeeded(self, ending: Ending) -> None:
        claim = ending.claim
        if logger.isEnabledFor(logging.INFO):
            self.flush()
            self._count += 1
            is_quiet = not self._was_loud and self._count <= LOUD_JOBS_PER_SECOND
            if is_quiet or self.is_complete or claim.attempt > 1:
                fields = self._describe(claim)
                logger.info(Event("job done", **fields, duration=ending.ran))
            else:
                count, total, longest = self._summary.get(claim.job_type, (0, 0.0, 0.0))
                self._summary[claim.job_type] = (
                    count + 1,
                    total + ending.ran,
                    max(longest, ending.ran),
                )
        if job_succeeded.receivers:
            fields = self._describe(claim)
            self._send(job_succeeded, **fields, duration=ending.ran)

    def _report_retried(
        self, ending: Ending, failure: Failure, delay: timedelta
    ) -> None:
        fields = self._describe(ending.claim) | {"error": failure.short}
        event = Event("job retries", **fields, next_in=delay.total_seconds())
        logger.warning(self._add_traceback(event, ending, failure))
        self._send(job_retried, **fields, delay=delay, exception=ending.exception)

    def _report_given_back(
        self, ending: Ending, outcome: str, error: str, delay: timedelta | None
    ) -> None:
        fields = self._describe(ending.claim) | {"outcome": outcome}
        is_trouble = isinstance(ending.outcome, GivenBack) and ending.outcome.is_trouble
        is_notable = is_trouble or outcome == "unknown_handler"
        logger.log(
            logging.WARNING if is_notable else logging.INFO,
            Event(
                "job given back",
                **fields,
                error=error,
                next_in=delay.total_seconds() if delay else 0.0,
            ),
        )
        self._send(job_given_back, **fields, error=error, delay=delay)

    def _add_traceback(self, event: Event, ending: Ending, failure: Failure) -> Event:
        if self._shows_traceback(ending):
            event.traceback = failure.traceback.rstrip()
        return event

    def _describe(self, claim: Claim) -> dict[str, Any]:
        return _describe_claim(claim, self.worker_id)


def report_late_error(claim: Claim, error: BaseException, *, worker_id: UUID) -> None:
    """Report an error that an on_commit() hook of an atomic job raised."""
    fields = _describe_claim(claim, worker_id)
    fields["error"] = describe_exception(error).short
    logger.error(Event("hook failed after the commit", **fields), exc_info=error)


def report_settled(claim: Claim, error: BaseException, *, worker_id: UUID) -> None:
    """Report an atomic job that has committed although its COMMIT raised."""
    fields = _describe_claim(claim, worker_id)
    fields["error"] = describe_exception(error).short
    logger.warning(Event("commit found, its hooks did not run", **fields))


def _describe_claim(claim: Claim, worker_id: UUID) -> dict[str, Any]:
    return {
        "job_id": claim.id,
        "job_type": claim.job_type,
        "queue": claim.queue,
        "attempt": claim.attempt,
        "worker_id": worker_id,
    }


def report_promoted(
    promoted: Iterable[Promoted], *, worker_id: UUID, send: Send = send_signal
) -> None:
    """Report jobs that became due."""
    if job_promoted.receivers:
        for job in promoted:
            send(
                job_promoted,
                job_id=job.id,
                job_type=job.job_type,
                queue=job.queue,
                worker_id=worker_id,
            )


def report_rescued(
    rescued: Rescued, *, worker_id: UUID, send: Send = send_signal
) -> None:
    """Report one job taken from a worker that is gone."""
    fields = {
        "job_id": rescued.id,
        "job_type": rescued.job_type,
        "queue": rescued.queue,
        "attempt": rescued.attempt,
        "worker_id": worker_id,
    }
    details = {"lost": rescued.lost, "owner": rescued.worker_id}
    logger.warning(Event("job rescued", **fields, **details))
    send(job_rescued, **fields, **details, is_dead=rescued.is_dead)
    if rescued.is_cancelled:
        end = {"reason": rescued.error}
        logger.info(Event("job cancelled", **fields, **end))
        send(job_cancelled, **fields, **end)
    if rescued.is_dead:
        _report_shared_id(rescued.id, rescued.new_dead_id)
        death = {"reason": "lost", "error": rescued.error}
        logger.error(Event("job dead", **fields, **death))
        send(job_died, **fields, **death, exception=None)


def report_unreadable(
    moved: Iterable[UnreadableJob], *, worker_id: UUID, send: Send = send_signal
) -> None:
    """Report jobs that are dead, or cancelled, because their rows cannot be read."""
    for job in moved:
        if not job.is_dead:
            text = "an unreadable job was cancelled"
            logger.error(Event(text, worker_id=worker_id, error=job.error))
            continue
        fields = {
            "job_id": job.id,
            "job_type": job.job_type,
            "queue": job.queue,
            "attempt": job.attempt,
            "worker_id": worker_id,
            "reason": "exception",
            "error": job.error,
        }
        logger.error(Event("job dead", **fields))
        send(job_died, **fields, exception=None)


def _report_shared_id(job_id: UUID, dead_job_id: UUID | None) -> None:
    """Log a job that died under another id, since a dead job had its own."""
    if dead_job_id is not None:
        text = "a dead job has this id already; stored under another"
        logger.error(Event(text, job_id=job_id, dead_job_id=dead_job_id))


def report_worker(text: str, *, worker_id: UUID, **fields: Any) -> None:
    """Log an event of a worker's own life."""
    worker_logger.info(Event(text, worker_id=worker_id, **fields))
