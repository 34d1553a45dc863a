"""Everything this package raises, and what a handler raises to steer its job.

Each error is named for its cause; the docstring is the message where none is given.
Enqueue, options and commands raise them at the edge, before anything is written.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lifecycle.enqueue_many import EnqueueCounts
    from .models import DeadJob


class JobQueueError(Exception):
    """Something about a job is wrong."""

    # Filled by enqueue_many: which spec was refused, and what was written before it.
    index: int | None = None
    counts: EnqueueCounts | None = None

    def __str__(self) -> str:
        return super().__str__() if self.args else _read_docstring(type(self))


def _read_docstring(cls: type) -> str:
    return " ".join((cls.__doc__ or cls.__name__).split())


class ConfigurationError(JobQueueError):
    """A value in the JOBQUEUE setting, the environment or a flag is not usable."""


class HandlerError(JobQueueError):
    """A handler is declared in a way that cannot work."""


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
    """The unique key changed hands on each of three tries; enqueue again."""


class InvalidResult(JobQueueError):
    """What the handler returned cannot be stored as JSON."""


class ResultTooLarge(InvalidResult):
    """What the handler returned is larger than MAX_RESULT_BYTES."""


class MiddlewareError(JobQueueError):
    """A middleware did not do its part in calling a handler."""


class LeaseLost(JobQueueError):
    """This attempt no longer owns its job; what it did is not recorded."""


class WorkerLost(JobQueueError):
    """The worker that ran this job was not heard of again."""


class WorkerCrashed(JobQueueError):
    """The process that ran this job died."""


class JobNotWaiting(JobQueueError):
    """Only a job that waits, scheduled or pending, can be changed."""


class WaitError(JobQueueError):
    """Waiting for a job did not bring its end."""


class WaitTimeout(WaitError):
    """The job has not ended within the timeout."""


class WaitInTransaction(WaitError):
    """Inside atomic() the job cannot start before the commit, so it cannot end."""


class ResultsNotKept(WaitError):
    """The job is gone: it has ended and was pruned, results are not kept."""


class JobDead(WaitError):
    """The job is in the dead letters."""

    def __init__(self, message: str, dead_job: DeadJob | None = None) -> None:
        super().__init__(message)
        self.dead_job = dead_job


class Steering(Exception):
    """What a handler raises to say what becomes of its job. Do not raise directly."""


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
    """A service asked us to come back after `delay`; the attempt does not count."""


class Cancel(Steering):
    """End this job as cancelled."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Discard(Steering):
    """Give this job up: it goes to the dead letters without another attempt."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Interruption(BaseException):
    """Raised by the worker inside a handler. Not an Exception, so that a handler's
    own `except Exception` does not swallow it."""


class JobTimeout(Interruption):
    """The attempt took longer than its timeout."""


class JobCancelled(Interruption):
    """Someone cancelled the job while it was running."""
