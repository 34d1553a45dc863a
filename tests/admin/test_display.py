"""Formatting of single values, unusual ones included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone, translation

from django_jobqueue.admin import display
from django_jobqueue.states import AttemptOutcome, DeadReason, JobStatus, WorkerState


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 ms"),
        (0.0421, "42 ms"),
        (9.99, "9.9 s"),
        (59.9, "59 s"),
        (61, "1 min 1 s"),
        (3_600, "1 h 0 min"),
        (90_061, "1 d 1 h"),
        (1e9, "11574 d 1 h"),
    ],
)
def test_duration_has_its_largest_units(seconds: float, text: str) -> None:
    assert display.describe_duration(timedelta(seconds=seconds)) == text


def test_age_is_shown_for_past_and_future() -> None:
    now = timezone.now()
    assert display.describe_age(now - timedelta(hours=2)) == "2 h 0 min ago"
    assert display.describe_age(now + timedelta(minutes=2)) == "in 1 min 59 s"


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Niue"])
@pytest.mark.parametrize(
    "moment", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)]
)
def test_first_and_last_possible_moments_are_shown(zone: str, moment: datetime) -> None:
    with timezone.override(zone):
        assert "<time" in display.show_moment(moment)
        assert "<time" in display.show_age(moment)


@pytest.mark.parametrize(
    "progress",
    [
        None,
        1,
        "half",
        [],
        {},
        {"fraction": "x"},
        {"fraction": 2},
        {"fraction": True},
        {"fraction": float("nan")},
        {"fraction": None, "note": "n"},
    ],
)
def test_progress_without_a_fraction_is_shown_as_json(progress: Any) -> None:
    assert "<progress" not in display.show_progress(progress)


def test_progress_is_a_bar_with_text() -> None:
    shown = display.show_progress({"fraction": 0.25, "note": "a <b>"})
    assert '<progress max="1" value="0.2500"' in shown
    assert "25%" in shown
    assert "a &lt;b&gt;" in shown


def test_json_is_indented_and_keeps_letters() -> None:
    shown = display.show_json({"städte": ["Zürich"]})
    assert "&quot;städte&quot;: [\n" in shown
    assert "Zürich" in shown


def test_json_nested_deeply_is_shown() -> None:
    value: Any = 1
    for _ in range(400):
        value = [value]
    assert "[" in display.show_json(value)


def test_long_text_is_cut_and_says_so() -> None:
    shown = display.show_block("x" * 200_000)
    assert len(shown) < 110_000
    assert "200000 characters in all" in shown
    assert display.show_text("x" * 100, limit=80) == "x" * 79 + "…"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\tlines", "plain\n\tlines"),
        ("a\u202eb", "a\\u202eb"),
        ("a\0b\x1b", "a\\u0000b\\u001b"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("Zürich 東京", "Zürich 東京"),
    ],
)
def test_invisible_characters_are_escaped(text: str, shown: str) -> None:
    assert display.escape_invisible(text) == shown


@pytest.mark.parametrize(
    "choices", [JobStatus, DeadReason, AttemptOutcome, WorkerState]
)
def test_every_state_has_a_badge_with_a_symbol_and_a_label(choices: Any) -> None:
    for value, label in choices.choices:
        badge = display.show_badge(value, label)
        assert str(label) in badge
        assert value in display._BADGES


def test_badge_of_an_unknown_value_is_shown() -> None:
    assert "&lt;new&gt;" in display.show_badge("<new>", "<new>")


def test_texts_are_translated_when_shown() -> None:
    with translation.override("de"):
        assert display.describe_duration(timedelta(seconds=30)) == "30 s"
