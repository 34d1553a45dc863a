"""`jobqueue list`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings
from django.utils import timezone

from django_jobqueue.cli.documents import BRIEF
from tests.commands.running import jobqueue
from tests.factories import make_dead_job, make_job

pytestmark = pytest.mark.django_db


def list_ids(*arguments: object) -> list[str]:
    result = jobqueue("list", "--json", *arguments)
    assert result.code == 0
    return [job["id"] for job in result.document["jobs"]]


def test_list_shows_the_last_enqueued_first() -> None:
    first, second = make_job(), make_job(succeeded=True)

    assert list_ids() == [str(second.pk), str(first.pk)]


def test_list_shows_a_line_for_each_job() -> None:
    job = make_job(attempts=1, lease_token=1, max_attempts=5, queue="mail")

    result = jobqueue("list")

    assert result.code == 0
    assert result.lines[0].split() == [
        "ID",
        "STATUS",
        "QUEUE",
        "TRIES",
        "SINCE",
        "TYPE",
    ]
    cells = result.lines[1].split()
    assert cells[:4] == [str(job.pk), "pending", "mail", "1/5"]
    assert cells[-1] == "testapp.add"
    assert max(map(len, result.lines)) <= 100


def test_list_filters_by_status_queue_type_and_key() -> None:
    wanted = make_job(queue="mail", job_type="testapp.email", unique_key="k")
    make_job(queue="mail", job_type="testapp.email", scheduled=True)
    make_job(queue="mail", unique_key="k")
    make_job(job_type="testapp.email")

    arguments = ["--queue", "mail", "--type", "testapp.email", "--status", "pending"]
    assert list_ids(*arguments) == [str(wanted.pk)]
    assert list_ids(*arguments, "--key", "k") == [str(wanted.pk)]
    assert len(list_ids("--key", "k")) == 2


@pytest.mark.parametrize(
    "status", ["scheduled", "pending", "running", "blocked", "succeeded", "cancelled"]
)
def test_list_knows_every_status(status: str) -> None:
    now = timezone.now()
    for end in ("succeeded", "cancelled"):
        make_job(**{end: True}, prune_at=now)
    make_job(running=True)
    for waiting in ("scheduled", "pending", "blocked"):
        make_job(status=waiting)

    [job] = jobqueue("list", "--json", "--status", status).document["jobs"]

    assert job["status"] == status


def test_pending_jobs_are_listed_in_claim_order() -> None:
    late, early = make_job(rank=20), make_job(rank=10)

    assert list_ids("--status", "pending") == [str(early.pk), str(late.pk)]


def test_ended_jobs_without_pruning_are_listed_too() -> None:
    job = make_job(succeeded=True)

    with override_settings(JOBQUEUE={"RETENTION": {"succeeded": None}}):
        assert list_ids("--status", "succeeded") == [str(job.pk)]


@pytest.mark.parametrize("arguments", [["--dead"], ["--status", "dead"]])
def test_dead_jobs_are_listed_the_last_to_die_first(arguments: list[str]) -> None:
    make_job()
    now = timezone.now()
    first = make_dead_job(died_at=now - timedelta(hours=1))
    second = make_dead_job(died_at=now, reason="timeout")

    [newest, _] = jobqueue("list", "--json", *arguments).document["jobs"]

    assert list_ids(*arguments) == [str(second.pk), str(first.pk)]
    assert (newest["status"], newest["reason"]) == ("dead", "timeout")


def test_dead_jobs_are_listed_with_reason_and_error() -> None:
    dead = make_dead_job(reason="timeout", error="JobTimeout: 30 s\n" + "x" * 200)

    header, line = jobqueue("list", "--dead").lines

    assert header.split() == ["ID", "REASON", "QUEUE", "TRIES", "DIED", "TYPE", "ERROR"]
    assert line.split()[:2] == [str(dead.pk), "timeout"]
    assert line.endswith("testapp.add  JobTimeout: 30 s")


def test_live_and_dead_jobs_have_the_documented_keys() -> None:
    make_job()
    make_dead_job()

    [live] = jobqueue("list", "--json").document["jobs"]
    [dead] = jobqueue("list", "--json", "--dead").document["jobs"]

    assert list(live) == list(dead) == list(BRIEF)


def test_limit_cuts_the_list_and_says_so() -> None:
    for _ in range(3):
        make_job()

    assert len(list_ids("--limit", 2)) == 2
    assert jobqueue("list", "--json", "--limit", 2).document["has_more"] is True
    assert jobqueue("list", "--json", "--limit", 3).document["has_more"] is False
    assert "There are more than 2" in jobqueue("list", "--limit", 2).out


def test_empty_list_is_not_an_error() -> None:
    text = jobqueue("list", "--queue", "nowhere")
    document = jobqueue("list", "--queue", "nowhere", "--json")

    assert (text.code, text.out, text.err) == (0, "No job matches.\n", "")
    assert (document.code, document.document) == (0, {"jobs": [], "has_more": False})


def test_dead_with_another_status_is_a_usage_error() -> None:
    result = jobqueue("list", "--dead", "--status", "pending")

    assert (result.code, result.err) == (
        2,
        "--dead and --status pending: choose one.\n",
    )


@pytest.mark.parametrize("limit", ["0", "-1", "ten", "10001", "9" * 30])
def test_a_limit_that_is_no_number_is_a_usage_error(limit: str) -> None:
    result = jobqueue("list", f"--limit={limit}")

    assert result.code == 2
    assert "is not a whole number from 1 to 10,000" in result.err
