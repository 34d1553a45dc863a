"""The options of one job, and the error message for each wrong value."""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from django_jobqueue import exponential, linear
from django_jobqueue.exceptions import (
    InvalidOption,
    InvalidPriority,
    InvalidQueueName,
    InvalidTime,
    JobQueueError,
)
from django_jobqueue.joboptions import JobOptions, read_job_options

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
NAIVE = datetime(2026, 1, 1, 12, 30)
BACKOFF = (
    "backoff takes seconds, a timedelta, a list of either, exponential(base, cap), "
    "linear(step, cap) or a callable (attempt, exception), each of 0 or more; not "
)
DURATION = "is a timedelta or seconds, from 0 to 100 years, not "
KEY = "unique_key is a text of 1 to 255 characters without NUL, not "
TAGS = "tags is a list of texts of 1 to 100 characters, not "
PRIORITY = "A priority is a whole number from -100 to 100 (higher runs first), not "
QUEUE = (
    "A queue name has 1 to 64 letters, digits, dots, dashes or underscores, not {!r}. "
    "Choose a name such as 'mail' or 'reports.daily'."
)
ATTEMPTS = (
    "max_attempts is a whole number from 1 to 32000, not {!r}. 1 means: never retry."
)
NAIVE_TEXT = (
    "{} is the naive datetime 2026-01-01T12:30:00, which has no time zone. "
    "Use django.utils.timezone.now() or make_aware()."
)


def callable_backoff(attempt: int, error: BaseException) -> int:
    return attempt


WRONG: list[tuple[dict[str, Any], type[JobQueueError], str]] = [
    ({"priority": 101}, InvalidPriority, f"{PRIORITY}101."),
    ({"priority": -101}, InvalidPriority, f"{PRIORITY}-101."),
    ({"priority": True}, InvalidPriority, f"{PRIORITY}True."),
    ({"priority": 1.5}, InvalidPriority, f"{PRIORITY}1.5."),
    ({"priority": "1"}, InvalidPriority, f"{PRIORITY}'1'."),
    ({"run_at": NAIVE}, InvalidTime, NAIVE_TEXT.format("run_at")),
    ({"expires_at": NAIVE}, InvalidTime, NAIVE_TEXT.format("expires_at")),
    ({"run_at": 5}, InvalidTime, "run_at is an aware datetime, not 5."),
    (
        {"run_at": date(2026, 1, 1)},
        InvalidTime,
        "run_at is an aware datetime, not datetime.date(2026, 1, 1).",
    ),
    (
        {"expires_at": "2026-01-01"},
        InvalidTime,
        "expires_at is an aware datetime, not '2026-01-01'.",
    ),
    (
        {"run_at": MOMENT, "delay": 5},
        InvalidTime,
        "run_at and delay both set when the job starts; pass only one of them.",
    ),
    (
        {"run_at": MOMENT, "delay": 0},
        InvalidTime,
        "run_at and delay both set when the job starts; pass only one of them.",
    ),
    ({"delay": -1}, InvalidTime, f"delay {DURATION}-1."),
    ({"delay": "5"}, InvalidTime, f"delay {DURATION}'5'."),
    ({"delay": True}, InvalidTime, f"delay {DURATION}True."),
    ({"delay": float("nan")}, InvalidTime, f"delay {DURATION}nan."),
    ({"delay": float("inf")}, InvalidTime, f"delay {DURATION}inf."),
    ({"delay": 10**400}, InvalidTime, f"delay {DURATION}1{'0' * 400}."),
    (
        {"delay": timedelta(seconds=-1)},
        InvalidTime,
        f"delay {DURATION}datetime.timedelta(days=-1, seconds=86399).",
    ),
    ({"timeout": -5}, InvalidTime, f"timeout {DURATION}-5."),
    (
        {"timeout": 0},
        InvalidTime,
        "timeout is a timedelta or seconds above 0, not 0. Leave it out for the "
        "handler's, then the setting's.",
    ),
    (
        {"timeout": timedelta()},
        InvalidTime,
        "timeout is a timedelta or seconds above 0, not datetime.timedelta(0). Leave "
        "it out for the handler's, then the setting's.",
    ),
    ({"max_attempts": 0}, InvalidOption, ATTEMPTS.format(0)),
    ({"max_attempts": True}, InvalidOption, ATTEMPTS.format(True)),
    ({"max_attempts": 2.0}, InvalidOption, ATTEMPTS.format(2.0)),
    ({"max_attempts": 32_001}, InvalidOption, ATTEMPTS.format(32_001)),
    ({"backoff": -1}, InvalidOption, f"{BACKOFF}-1."),
    ({"backoff": "fast"}, InvalidOption, f"{BACKOFF}'fast'."),
    ({"backoff": []}, InvalidOption, f"{BACKOFF}[]."),
    ({"backoff": [1, "2"]}, InvalidOption, f"{BACKOFF}'2'."),
    (
        {"backoff": callable_backoff},
        InvalidOption,
        "A row cannot store a callable backoff: write @job(backoff=…) on the handler, "
        "or pass seconds, a list, exponential() or linear().",
    ),
    ({"queue": ""}, InvalidQueueName, QUEUE.format("")),
    ({"queue": "a b"}, InvalidQueueName, QUEUE.format("a b")),
    ({"queue": "x" * 65}, InvalidQueueName, QUEUE.format("x" * 65)),
    ({"queue": 5}, InvalidQueueName, QUEUE.format(5)),
    ({"queue": ["mail"]}, InvalidQueueName, QUEUE.format(["mail"])),
    ({"unique_key": ""}, InvalidOption, f"{KEY}''. Hash a longer key."),
    ({"unique_key": "a\0"}, InvalidOption, f"{KEY}'a\\x00'. Hash a longer key."),
    ({"unique_key": "\ud800"}, InvalidOption, f"{KEY}'\\ud800'. Hash a longer key."),
    ({"unique_key": 5}, InvalidOption, f"{KEY}'5'. Hash a longer key."),
    (
        {"unique_key": "k" * 256},
        InvalidOption,
        f"{KEY}'{'k' * 80}'. Hash a longer key.",
    ),
    ({"tags": "mail"}, InvalidOption, f"{TAGS}'mail'."),
    ({"tags": [1]}, InvalidOption, f"{TAGS}[1]."),
    ({"tags": [""]}, InvalidOption, f"{TAGS}['']."),
    ({"tags": ["t" * 101]}, InvalidOption, f"{TAGS}['{'t' * 101}']."),
    (
        {"tags": ["a\0"]},
        JobQueueError,
        "tags[0] contains a NUL character, which PostgreSQL cannot store.",
    ),
    ({"meta": []}, InvalidOption, "meta is a dict that JSON can hold, not []."),
    (
        {"meta": {"at": MOMENT}},
        JobQueueError,
        "meta['at'] is of type datetime, which JSON does not have; pass "
        "value.isoformat().",
    ),
    (
        {"prioritty": 1},
        InvalidOption,
        "A job has no option 'prioritty'. Did you mean 'priority'?",
    ),
    (
        {"countdown": 5},
        InvalidOption,
        "A job has no option 'countdown'. Write delay=…, which takes seconds or a "
        "timedelta.",
    ),
    (
        {"eta": MOMENT},
        InvalidOption,
        "A job has no option 'eta'. Write run_at=…, which takes an aware datetime "
        "(delay=… takes seconds or a timedelta).",
    ),
    (
        {"zzz": 1},
        InvalidOption,
        "A job has no option 'zzz'. Known: queue, priority, run_at, delay, "
        "max_attempts, timeout, backoff, unique_key, expires_at, tags, meta.",
    ),
]


@pytest.mark.parametrize(("given", "cause", "message"), WRONG)
def test_wrong_option_says_what_was_expected_and_what_came(
    given: dict[str, Any], cause: type[JobQueueError], message: str
) -> None:
    with pytest.raises(JobQueueError) as caught:
        read_job_options(given)
    assert isinstance(caught.value, cause)
    assert str(caught.value) == message


def test_no_options_are_all_none() -> None:
    assert read_job_options({}) == JobOptions()


def test_none_means_that_an_option_was_not_given() -> None:
    given = dict.fromkeys(["queue", "priority", "run_at", "timeout", "tags", "meta"])
    assert read_job_options(given) == JobOptions()


def test_run_at_goes_with_a_delay_of_none() -> None:
    assert read_job_options({"run_at": MOMENT, "delay": None}).run_at == MOMENT


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("priority", -100, -100),
        ("priority", 100, 100),
        ("queue", "reports.daily", "reports.daily"),
        ("delay", 0, timedelta()),
        ("delay", 1.5, timedelta(seconds=1.5)),
        ("delay", timedelta(days=36_500), timedelta(days=36_500)),
        ("timeout", 30, timedelta(seconds=30)),
        ("timeout", timedelta(minutes=1), timedelta(minutes=1)),
        ("max_attempts", 1, 1),
        ("unique_key", "k" * 255, "k" * 255),
        ("unique_key", "ключ 🔑", "ключ 🔑"),
        ("run_at", MOMENT, MOMENT),
        ("expires_at", MOMENT, MOMENT),
    ],
)
def test_good_option_is_read(name: str, value: Any, expected: Any) -> None:
    assert getattr(read_job_options({name: value}), name) == expected


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (5, [5]),
        (timedelta(minutes=1), [60]),
        ([1, timedelta(seconds=2), 3.5], [1, 2, 3.5]),
        (exponential(2, 60), {"exponential": [2, 60]}),
        (linear(timedelta(seconds=3), 30), {"linear": [3, 30]}),
    ],
)
def test_backoff_is_read_in_every_form_a_row_can_hold(value: Any, stored: Any) -> None:
    backoff = read_job_options({"backoff": value}).backoff
    assert backoff is not None
    assert backoff.dump() == stored


@pytest.mark.parametrize("tags", [["b", "a"], ("b", "a")])
def test_tags_keep_their_order(tags: Any) -> None:
    assert json.loads(read_job_options({"tags": tags}).tags or "") == ["b", "a"]


def test_tags_of_a_set_are_sorted() -> None:
    assert read_job_options({"tags": {"b", "a", "c"}}).tags == '["a","b","c"]'


def test_meta_is_any_json_object() -> None:
    meta = {"trace": {"id": "1"}, "n": [1, None]}
    assert json.loads(read_job_options({"meta": meta}).meta or "") == meta
