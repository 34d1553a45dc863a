"""`jobqueue requeue`."""

from __future__ import annotations

import pytest

from django_jobqueue import DeadJob, Job
from django_jobqueue.cli import requeue
from tests.commands.running import jobqueue, type_answer
from tests.factories import make_dead_job, make_job

pytestmark = pytest.mark.django_db


def test_requeue_makes_dead_jobs_pending_by_id() -> None:
    first, second, other = (make_dead_job() for _ in range(3))

    result = jobqueue("requeue", first.pk, second.pk)

    assert (result.code, result.out, result.err) == (0, "2 requeued\n", "")
    assert set(Job.objects.values_list("pk", flat=True)) == {first.pk, second.pk}
    assert DeadJob.objects.get().pk == other.pk


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (["--queue", "mail"], 2),
        (["--type", "testapp.nothing"], 1),
        (["--reason", "timeout"], 1),
        (["--fingerprint", "abc"], 1),
        (["--queue", "mail", "--fingerprint", "abc"], 1),
        (["--all"], 3),
    ],
)
def test_requeue_by_filter_takes_the_dead_jobs_that_match(
    arguments: list[str], number: int
) -> None:
    make_dead_job(queue="mail", fingerprint="abc")
    make_dead_job(queue="mail", reason="timeout")
    make_dead_job(job_type="testapp.nothing", payload={})

    result = jobqueue("requeue", *arguments, "--yes", "--json")

    assert result.code == 0
    assert result.document == {
        "requeued": number,
        "key_in_use": 0,
        "stayed": [],
        "not_found": [],
    }
    assert Job.objects.count() == number


def test_a_job_whose_key_is_in_use_stays_dead_and_is_named() -> None:
    user = make_job(unique_key="k")
    dead = make_dead_job(unique_key="k")
    make_dead_job()

    result = jobqueue("requeue", "--all", "--yes", "--json")

    assert result.code == 1
    assert result.document == {
        "requeued": 1,
        "key_in_use": 1,
        "stayed": [
            {"id": str(dead.pk), "unique_key": "k", "used_by": str(user.pk)},
        ],
        "not_found": [],
    }
    assert result.err == "Some dead jobs could not be requeued.\n"


def test_a_key_in_use_is_printed_as_text() -> None:
    user, dead = make_job(unique_key="k"), make_dead_job(unique_key="k")

    result = jobqueue("requeue", dead.pk)

    assert result.code == 1
    assert result.lines == [
        "0 requeued",
        "1 not requeued, the unique key is in use:",
        f"  {dead.pk}  'k' of {user.pk}",
    ]


def test_a_live_or_unknown_id_is_code_1() -> None:
    live, dead = make_job(), make_dead_job()

    result = jobqueue("requeue", live.pk, "00000000", dead.pk, "--json")

    assert result.code == 1
    assert result.document["requeued"] == 1
    assert result.document["not_found"] == ["00000000", str(live.pk)]
    assert f"There is no dead job {live.pk}." in result.err


def test_requeue_works_in_batches_and_shows_its_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requeue, "BATCH_SIZE", 2)
    for _ in range(3):
        make_dead_job()

    result = jobqueue("requeue", "--all", "--yes", is_watched=True)

    assert result.err.splitlines() == ["2 of 3 dead jobs", "3 of 3 dead jobs"]
    assert Job.objects.count() == 3


def test_nothing_that_matches_is_code_1() -> None:
    result = jobqueue("requeue", "--all", "--yes", "--json")

    assert (result.code, result.document["requeued"]) == (1, 0)
    assert result.err == "No dead job matches.\n"


def test_a_filter_needs_yes_or_a_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    make_dead_job()

    refused = jobqueue("requeue", "--all")
    type_answer(monkeypatch, "yes")
    done = jobqueue("requeue", "--all", is_watched=True)

    assert refused.code == 2
    assert refused.err == "Requeue 1 dead job? This is not a terminal: add --yes.\n"
    assert (done.code, Job.objects.count()) == (0, 1)


@pytest.mark.parametrize("arguments", [[], ["00000000", "--queue", "mail"]])
def test_ids_or_filters_but_not_both(arguments: list[str]) -> None:
    result = jobqueue("requeue", *arguments)

    assert result.code == 2
    assert result.err.startswith("Give either the ids of dead jobs, or one of")
