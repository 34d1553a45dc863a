"""`jobqueue prune`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.lifecycle import prune
from tests.commands.running import jobqueue
from tests.factories import make_dead_job, make_job

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def make_ended(status: str, *, days: int, age: timedelta | None) -> Job:
    end = timezone.now() - days * DAY
    prune_at = None if age is None else end + age
    return make_job(**{status: True}, finished_at=end, prune_at=prune_at)


def make_mixture() -> None:
    make_ended("succeeded", days=2, age=DAY)
    make_ended("cancelled", days=8, age=7 * DAY)
    make_ended("cancelled", days=9, age=7 * DAY)
    make_ended("succeeded", days=3, age=None)
    make_job()
    make_dead_job()


def test_prune_deletes_what_is_due_and_counts_it() -> None:
    make_mixture()

    result = jobqueue("prune")

    assert (result.code, result.err) == (0, "")
    assert result.out == "3 jobs pruned: 1 succeeded, 2 cancelled\n"
    assert Job.objects.count() == 2


def test_a_dry_run_counts_the_same_and_deletes_nothing() -> None:
    make_mixture()

    text, result = (
        jobqueue("prune", "--dry-run"),
        jobqueue("prune", "--dry-run", "--json"),
    )

    assert text.out == "3 jobs would be pruned: 1 succeeded, 2 cancelled\n"
    assert result.document == {
        "is_dry_run": True,
        "succeeded": 1,
        "cancelled": 2,
        "total": 3,
    }
    assert Job.objects.count() == 5


@pytest.mark.parametrize("arguments", [[], ["--older-than", "36h"]])
def test_a_limit_holds_for_the_dry_run_too(arguments: list[str]) -> None:
    make_mixture()

    dry = jobqueue("prune", *arguments, "--limit", 2, "--dry-run", "--json").document
    done = jobqueue("prune", *arguments, "--limit", 2, "--json").document

    assert dry["total"] == done["total"] == 2
    assert Job.objects.count() == 3


def test_older_than_counts_from_the_end_and_ignores_retention() -> None:
    make_mixture()
    arguments = ("prune", "--older-than", "60h", "--json")

    dry = jobqueue(*arguments, "--dry-run").document
    done = jobqueue(*arguments).document

    assert (dry["succeeded"], dry["cancelled"], dry["total"]) == (1, 2, 3)
    assert {**done, "is_dry_run": True} == dry
    assert Job.objects.count() == 2


def test_nothing_to_prune_is_code_0() -> None:
    result = jobqueue("prune", "--json")

    assert (result.code, result.document["total"]) == (0, 0)


def test_prune_shows_each_batch_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prune, "BATCH_JOBS", 2)
    for _ in range(3):
        make_ended("succeeded", days=2, age=DAY)

    result = jobqueue("prune", "--json", is_watched=True)

    assert result.err.splitlines() == [
        "batch 1: 2 jobs pruned",
        "batch 2: 3 jobs pruned",
    ]
    assert result.document["total"] == 3


@pytest.mark.parametrize("age", ["old", "-1", "1 day", ""])
def test_an_age_that_is_no_duration_is_a_usage_error(age: str) -> None:
    result = jobqueue("prune", f"--older-than={age}")

    assert result.code == 2
    assert f"{age!r} is not a duration: expected seconds, or numbers with" in result.err
