"""`jobqueue cancel`."""

from __future__ import annotations

import pytest

from django_jobqueue import Job
from django_jobqueue.cli import cancel
from tests.commands.running import jobqueue, type_answer
from tests.factories import make_dead_job, make_job

pytestmark = pytest.mark.django_db


def counts(**numbers: int) -> dict[str, object]:
    zeros = {"cancelled": 0, "requested": 0, "ended": 0}
    return {**zeros, "not_found": [], **numbers}


def statuses() -> list[str]:
    return sorted(Job.objects.values_list("status", flat=True))


def test_cancel_ends_waiting_jobs_and_asks_running_ones_to_stop() -> None:
    waiting, running = make_job(), make_job(running=True)

    result = jobqueue("cancel", waiting.pk, running.pk, "--json")

    assert (result.code, result.document) == (0, counts(cancelled=1, requested=1))
    assert statuses() == ["cancelled", "running"]
    running.refresh_from_db()
    assert running.cancel_requested_at is not None


def test_cancel_prints_a_summary() -> None:
    result = jobqueue("cancel", make_job().pk, make_job(running=True).pk)

    assert result.lines == ["1 cancelled", "1 running, asked to stop"]


def test_cancel_of_an_ended_or_dead_job_is_code_1() -> None:
    result = jobqueue(
        "cancel", make_job(succeeded=True).pk, make_dead_job().pk, make_job().pk
    )

    assert result.code == 1
    assert result.lines == ["1 cancelled", "2 had ended already or are dead"]
    assert result.err == "Some jobs could not be cancelled.\n"


def test_cancel_of_an_unknown_job_is_code_1_and_cancels_the_others() -> None:
    result = jobqueue("cancel", "00000000", make_job().pk, "--json")

    assert result.code == 1
    assert result.document == {**counts(cancelled=1), "not_found": ["00000000"]}
    assert result.err == "There is no job 00000000, live or dead.\n"


def test_an_ambiguous_id_cancels_nothing() -> None:
    first, second = make_job(), make_job()
    common = str(first.pk)[:8]
    assert str(second.pk).startswith(common)

    result = jobqueue("cancel", common, first.pk)

    assert result.code == 2
    assert statuses() == ["pending", "pending"]


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (["--queue", "mail"], 2),
        (["--type", "testapp.nothing"], 2),
        (["--queue", "mail", "--type", "testapp.nothing"], 1),
        (["--status", "scheduled"], 1),
        (["--all"], 4),
    ],
)
def test_cancel_by_filter_takes_the_live_jobs_that_match(
    arguments: list[str], number: int
) -> None:
    make_job(queue="mail")
    make_job(queue="mail", job_type="testapp.nothing")
    make_job(job_type="testapp.nothing", status="blocked")
    make_job(scheduled=True)
    make_job(succeeded=True, queue="mail", job_type="testapp.nothing")

    result = jobqueue("cancel", *arguments, "--yes", "--json")

    assert (result.code, result.document) == (0, counts(cancelled=number))


def test_cancel_by_filter_asks_each_running_job_once() -> None:
    make_job(running=True)

    assert jobqueue("cancel", "--all", "--yes").out == "1 running, asked to stop\n"
    assert jobqueue("cancel", "--all", "--yes").code == 1


def test_cancel_by_filter_works_in_bounded_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cancel, "BATCH_SIZE", 2)
    for _ in range(5):
        make_job()

    result = jobqueue("cancel", "--all", "--yes", is_watched=True)

    assert "5 cancelled" in result.out
    assert result.err.splitlines() == [
        "2 of about 5 jobs",
        "4 of about 5 jobs",
        "5 of about 5 jobs",
    ]


def test_nothing_that_matches_is_code_1() -> None:
    result = jobqueue("cancel", "--queue", "nowhere", "--yes", "--json")

    assert (result.code, result.document) == (1, counts())
    assert result.err == "No job matches.\n"


def test_a_filter_needs_yes_without_a_terminal() -> None:
    make_job()

    result = jobqueue("cancel", "--all")

    assert result.code == 2
    assert result.err == "Cancel 1 job? This is not a terminal: add --yes.\n"
    assert statuses() == ["pending"]


@pytest.mark.parametrize(
    ("answer", "code", "status"),
    [("y", 0, "cancelled"), ("no", 1, "pending"), ("", 1, "pending")],
)
def test_a_filter_asks_for_confirmation_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, answer: str, code: int, status: str
) -> None:
    make_job()
    type_answer(monkeypatch, answer)

    result = jobqueue("cancel", "--all", is_watched=True)

    assert result.code == code
    assert result.err.startswith("Cancel 1 job? [y/N] ")
    assert statuses() == [status]


@pytest.mark.parametrize("arguments", [[], ["--yes"], ["00000000", "--all"]])
def test_ids_or_filters_but_not_both(arguments: list[str]) -> None:
    result = jobqueue("cancel", *arguments)

    assert result.code == 2
    assert result.err.startswith("Give either the ids of jobs, or one of --queue")
