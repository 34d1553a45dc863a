"""JobContext: what a handler can read and report about its attempt."""

import logging
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from django_jobqueue import JobContext
from django_jobqueue.context import AttemptFlags
from django_jobqueue.exceptions import InvalidOption, LeaseLost

JOB_ID = UUID("01890000-0000-7000-8000-000000000001")
DEADLINE = datetime(2026, 1, 1, tzinfo=UTC)


def make_context(**values: Any) -> JobContext:
    given = {
        "job_id": JOB_ID,
        "job_type": "mail.send",
        "attempt": 2,
        "max_attempts": 5,
        "deadline": DEADLINE,
    }
    return JobContext(**{**given, **values})


def test_context_has_the_number_of_the_attempt() -> None:
    context = make_context()
    assert context.job_id == JOB_ID
    assert context.job_type == "mail.send"
    assert (context.attempt, context.max_attempts) == (2, 5)
    assert context.deadline == DEADLINE


def test_context_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        make_context().attempt = 9  # type: ignore[misc]


def test_flags_set_by_other_threads_are_visible() -> None:
    flags = AttemptFlags()
    context = make_context(_flags=flags)
    assert (context.stopping, context.cancelled) == (False, False)
    flags.stopping = True
    assert (context.stopping, context.cancelled) == (True, False)
    flags.cancelled = True
    assert context.cancelled


def test_contexts_do_not_share_their_flags() -> None:
    first, second = make_context(), make_context()
    first._flags.stopping = True
    assert not second.stopping


@pytest.mark.parametrize(
    ("fraction", "stored"), [(0, 0.0), (1, 1.0), (0.5, 0.5), (1 / 3, 0.3333)]
)
def test_progress_is_reported(fraction: float, stored: float) -> None:
    reports: list[dict[str, Any]] = []
    make_context(_report=reports.append).progress(fraction, "on the way")
    assert reports == [{"fraction": stored, "note": "on the way"}]


def test_the_note_of_progress_is_cleaned() -> None:
    reports: list[dict[str, Any]] = []
    context = make_context(_report=reports.append)
    context.progress(0.1)
    context.progress(0.2, "a\0b\ud800")
    context.progress(0.3, 5)  # type: ignore[arg-type]
    context.progress(0.4, "x" * 10_000)
    notes = [report["note"] for report in reports]
    assert notes[:3] == ["", "a\ufffdb\ufffd", "5"]
    assert len(notes[3]) <= 4000


@pytest.mark.parametrize("fraction", [-0.1, 1.1, "0.5", None, float("nan"), 50])
def test_a_fraction_outside_0_to_1_is_refused(fraction: Any) -> None:
    reports: list[dict[str, Any]] = []
    with pytest.raises(InvalidOption) as caught:
        make_context(_report=reports.append).progress(fraction)
    assert str(caught.value) == (
        f"progress() takes a fraction from 0 to 1, not {fraction!r}."
    )
    assert reports == []


def test_progress_of_a_lost_job_raises_lease_lost() -> None:
    reports: list[dict[str, Any]] = []
    flags = AttemptFlags(lost=True)
    with pytest.raises(LeaseLost):
        make_context(_flags=flags, _report=reports.append).progress(0.5)
    assert reports == []


def test_idempotency_key_is_the_same_in_every_attempt() -> None:
    keys = {make_context(attempt=n).idempotency_key("charge") for n in (1, 2, 3)}
    assert keys == {f"{JOB_ID}:charge"}
    assert make_context().idempotency_key() == str(JOB_ID)


def test_logger_belongs_to_the_package() -> None:
    assert make_context().logger is logging.getLogger("django_jobqueue.job")
