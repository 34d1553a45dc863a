"""The exceptions: their default texts, and those that a handler raises on purpose."""

import inspect
from datetime import timedelta
from typing import Any

import pytest

from django_jobqueue import exceptions
from django_jobqueue.exceptions import (
    Cancel,
    Discard,
    Interruption,
    InvalidOption,
    InvalidPayload,
    InvalidResult,
    InvalidTime,
    JobCancelled,
    JobDead,
    JobQueueError,
    JobTimeout,
    LeaseLost,
    RateLimited,
    Snooze,
    WaitError,
)

ALL = [
    value
    for value in vars(exceptions).values()
    if inspect.isclass(value) and value.__module__ == exceptions.__name__
]
ERRORS = [cls for cls in ALL if issubclass(cls, JobQueueError) and cls is not JobDead]


@pytest.mark.parametrize("cls", ERRORS)
def test_error_without_a_message_uses_its_docstring(cls: type[JobQueueError]) -> None:
    assert cls.__doc__
    assert str(cls()) == " ".join(cls.__doc__.split())


@pytest.mark.parametrize("cls", [*ERRORS, JobDead])
def test_error_with_a_message_keeps_it(cls: type[JobQueueError]) -> None:
    assert str(cls("it is so")) == "it is so"


def test_subclass_without_a_docstring_still_has_a_message() -> None:
    class Mine(JobQueueError):
        pass

    assert str(Mine())


def test_error_outside_a_bulk_has_neither_index_nor_counts() -> None:
    error = JobQueueError("no")
    assert (error.index, error.counts) == (None, None)


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        ("PayloadTooLarge", InvalidPayload),
        ("ResultTooLarge", InvalidResult),
        # The type that json.dumps() raises.
        ("InvalidResult", TypeError),
        ("InvalidPriority", InvalidOption),
        ("InvalidQueueName", InvalidOption),
        ("InvalidTime", InvalidOption),
        ("WaitTimeout", WaitError),
        ("WaitInTransaction", WaitError),
        ("ResultsNotKept", WaitError),
        ("JobDead", WaitError),
        ("UnknownJobType", JobQueueError),
        ("InvalidArguments", JobQueueError),
        ("UniqueKeyBusy", JobQueueError),
        ("WorkerLost", JobQueueError),
    ],
)
def test_error_is_caught_by_its_parent(child: str, parent: type[Exception]) -> None:
    assert issubclass(getattr(exceptions, child), parent)


@pytest.mark.parametrize("cls", [Snooze, RateLimited, Cancel, Discard])
def test_control_flow_exceptions_are_not_jobqueue_errors(cls: type[Exception]) -> None:
    assert issubclass(cls, Exception)
    assert not issubclass(cls, JobQueueError)


@pytest.mark.parametrize("cls", [JobTimeout, JobCancelled])
def test_interruption_is_not_swallowed_by_except_exception(
    cls: type[BaseException],
) -> None:
    assert issubclass(cls, Interruption)
    assert not issubclass(cls, Exception)


@pytest.mark.parametrize("cls", [Snooze, RateLimited])
@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        (0, timedelta()),
        (1.5, timedelta(seconds=1.5)),
        (timedelta(hours=1), timedelta(hours=1)),
    ],
)
def test_delay_is_seconds_or_a_timedelta(
    cls: type[Snooze], delay: Any, expected: timedelta
) -> None:
    error = cls(delay, "later")
    assert (error.delay, error.reason, str(error)) == (expected, "later", "later")


@pytest.mark.parametrize("cls", [Snooze, RateLimited])
@pytest.mark.parametrize(
    "delay", [-1, timedelta(seconds=-1), "5", None, float("nan"), float("inf"), 1e12]
)
def test_impossible_delay_is_refused(cls: type[Snooze], delay: Any) -> None:
    with pytest.raises(InvalidTime) as caught:
        cls(delay)
    assert str(caught.value) == (
        f"{cls.__name__} takes a timedelta or seconds of 0 or more, not {delay!r}."
    )


@pytest.mark.parametrize("cls", [Cancel, Discard])
def test_reason_may_be_left_out(cls: type[Cancel]) -> None:
    assert (cls().reason, cls("spam").reason, str(cls("spam"))) == ("", "spam", "spam")


def test_job_dead_carries_the_dead_job() -> None:
    assert JobDead("dead").dead_job is None
    dead_job: Any = object()
    assert JobDead("dead", dead_job).dead_job is dead_job


def test_lease_lost_says_that_nothing_is_recorded() -> None:
    assert str(LeaseLost()) == (
        "This attempt no longer owns its job; what it did is not recorded."
    )
