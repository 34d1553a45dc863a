"""`jobqueue errors`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.commands.running import jobqueue
from tests.factories import make_dead_job

pytestmark = pytest.mark.django_db


def fill() -> str:
    now = timezone.now()
    for hours in (5, 3):
        make_dead_job(
            fingerprint="f00",
            error=f"ValueError: {hours}",
            died_at=now - timedelta(hours=hours),
        )
    last = make_dead_job(
        fingerprint="f00",
        error="ValueError: last\nmore",
        job_type="testapp.nothing",
        queue="mail",
        died_at=now - timedelta(minutes=2),
    )
    make_dead_job(fingerprint="ba5", reason="timeout", error="x" * 200)
    return str(last.pk)


def test_errors_are_grouped_with_counts_the_most_frequent_first() -> None:
    id = fill()

    result = jobqueue("errors", "--json")

    assert result.code == 0
    [first, second] = result.document["errors"]
    assert (first["fingerprint"], first["number"], first["job_types"]) == ("f00", 3, 2)
    assert (first["id"], first["error"]) == (id, "ValueError: last\nmore")
    assert first["first_died_at"] < first["last_died_at"]
    assert (second["fingerprint"], second["reason"]) == ("ba5", "timeout")
    assert result.document["has_more"] is False


def test_errors_are_a_table_for_people() -> None:
    fill()

    result = jobqueue("errors")

    header, first, second, hint = result.lines
    assert header.split()[0] == "JOBS"
    assert first.split()[:2] == ["3", "2"]
    assert "testapp.nothing and 1 more" in first
    assert first.endswith("ValueError: last")
    assert second.endswith("x…")
    assert "requeue --fingerprint" in hint


def test_errors_are_filtered_and_cut() -> None:
    fill()

    [mail] = jobqueue("errors", "--json", "--queue", "mail").document["errors"]
    [add] = jobqueue(
        "errors", "--json", "--type", "testapp.add", "--limit", 1
    ).document["errors"]

    assert (mail["number"], add["number"]) == (1, 2)
    assert "There are more than 1;" in jobqueue("errors", "--limit", 1).out


def test_no_dead_job_is_not_an_error() -> None:
    result = jobqueue("errors")

    assert (result.code, result.out, result.err) == (0, "No dead job matches.\n", "")
