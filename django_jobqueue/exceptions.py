"""All exceptions of the package, and those that a handler raises to steer its job.

Each error is named for its cause; its docstring is the default message. Enqueue,
options and commands raise them before anything is written.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lifecycle.enqueue_many import EnqueueCounts
    from .models import DeadJob


class JobQueueError(Exception):
    """Something about a job is wrong."""

    # Set by enqueue_many: the number of the refused spec, and what was written before.
    index: int | None = None
    counts: EnqueueCounts | None = None

    def __str__(self) -> str:
        return super().__str__() if self.args else _read_docstring(type(self))


def _read_docstring(cls: type) -> str:
    return " ".join((cls.__doc__ or cls.__name__).split())


class ConfigurationError(JobQueueError):
    """A value in the JOBQUEUE setting, the environment or a flag is not usable."""


class HandlerError(JobQueueError):
    """The declaration of a handler cannot work."""


class UnknownJobType(JobQueueError):
    """No handler of that name is registered."""


class InvalidPayload(JobQueueError):
    """The payload is not a JSON object."""


class PayloadTooLarge(InvalidPayload):
    """The payload is larger than MAX_PAYLOAD_BYTES."""


class InvalidArguments(JobQueueError):
    """The payload does not fit the handler's signature."""


class InvalidOption(JobQueueError):
    """An option of a job has a value that cannot be used."""


class InvalidPriority(InvalidOption):
    """A priority is a whole number from -100 to 100."""


class InvalidQueueName(InvalidOption):
    """A queue name has 1 to 64 letters, digits, dots, dashes or underscores."""


class InvalidTime(InvalidOption):
    """A time must be an aware datetime, a delay a timedelta or seconds."""


class UniqueKeyBusy(JobQueueError):
    """The unique key changed hands on each of three tries, or a job has it that the
    transaction cannot see (REPEATABLE READ, SERIALIZABLE); enqueue again."""


class InvalidResult(JobQueueError, TypeError):
    """What the handler returned cannot be stored as JSON."""


class ResultTooLarge(InvalidResult):
    """What the handler returned is larger than MAX_RESULT_BYTES."""


class MiddlewareError(JobQueueError):
    """A middleware did not do its part in calling a handler."""


class LeaseLost(JobQueueError):
    """This attempt no longer owns its job; what it did is not recorded."""


class WorkerLost(JobQueueError):
    """The worker that ran this job stopped sending heartbeats."""


class WorkerCrashed(JobQueueError):
    """The process that ran this job died."""


class JobNotWaiting(JobQueueError):
    """Only a job that waits, scheduled or pending, can be changed."""


class JobNotEnded(JobQueueError):
    """Only a job that succeeded or was cancelled can be enqueued again."""


class WaitError(JobQueueError):
    """Waiting for a job did not bring its end."""


class WaitTimeout(WaitError):
    """The job has not ended within the timeout."""


class WaitInTransaction(WaitError):
    """Inside atomic() the job cannot start before the commit, so it cannot end. Call
    wait() after the block."""


class ResultsNotKept(WaitError):
    """The job is gone: it has ended and was pruned, results are not kept."""


class JobDead(WaitError):
    """The job is a dead job."""

    def __init__(self, message: str, dead_job: DeadJob | None = None) -> None:
        super().__init__(message)
        self.dead_job = dead_job


class Steering(Exception):
    """The parent of what a handler raises to steer its job. Never raised itself."""


class _Later(Steering):
    def __init__(self, delay: timedelta | float, reason: str = "") -> None:
        super().__init__(reason)
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if not isinstance(seconds, int | float) or not 0 <= seconds < 3.2e9:
            raise InvalidTime(
                f"{type(self).__name__} takes a timedelta or seconds of 0 or more, "
                f"not {delay!r}."
            )
        self.delay = timedelta(seconds=seconds)
        self.reason = reason


class Snooze(_Later):
    """Run this job again after `delay`; the attempt does not count."""


class RateLimited(_Later):
    """A service asked to be called again after `delay`; the attempt does not count."""


class Cancel(Steering):
    """End this job as cancelled."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Discard(Steering):
    """Make this job a dead job, without another attempt."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Interruption(BaseException):
    """Raised by the worker inside a handler. Not an Exception: a handler's own
    `except Exception` must not swallow it."""


class JobTimeout(Interruption):
    """The attempt took longer than its timeout."""


class JobCancelled(Interruption):
    """The job was cancelled while it was running."""
