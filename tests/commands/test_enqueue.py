"""`jobqueue enqueue TYPE`."""

from __future__ import annotations

import io
import json
from datetime import timedelta

import pytest
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_jobqueue import Job
from tests.commands.running import jobqueue
from tests.factories import make_job

pytestmark = pytest.mark.django_db


def test_enqueue_makes_a_job_and_says_its_id() -> None:
    result = jobqueue("enqueue", "testapp.add", "--payload", '{"x": 1}')

    job = Job.objects.get()
    assert (result.code, result.err) == (0, "")
    assert result.out == f"Enqueued {job.pk}: testapp.add in default, pending\n"
    assert job.payload == {"x": 1}


def test_enqueue_takes_the_options_of_a_job() -> None:
    result = jobqueue(
        "enqueue",
        "testapp.nothing",
        *("--queue", "mail", "--priority", "-5", "--max-attempts", "7"),
        *("--unique-key", "k", "--delay", "1h30m", "--json"),
    )

    job = Job.objects.get()
    assert result.document["id"] == str(job.pk)
    assert result.document["was_created"] is True
    assert (job.queue, job.priority, job.max_attempts) == ("mail", -5, 7)
    assert (job.unique_key, job.status) == ("k", "scheduled")
    assert job.run_at - job.created_at == timedelta(minutes=90)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2099-01-02T03:04:05+02:00", "2099-01-02T01:04:05Z"),
        ("2099-01-02 03:04", "2099-01-02T03:04:00Z"),
        ("2099-01-02", "2099-01-02T00:00:00Z"),
    ],
)
def test_enqueue_takes_a_time(text: str, moment: str) -> None:
    result = jobqueue("enqueue", "testapp.nothing", "--at", text)

    assert result.code == 0
    assert Job.objects.get().run_at == parse_datetime(moment)
    assert "scheduled for 2099-01-02" in result.out


def test_enqueue_reads_the_payload_from_standard_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"x": 41}'))

    assert jobqueue("enqueue", "testapp.add", "--payload", "-").code == 0

    assert Job.objects.get().payload == {"x": 41}


def test_a_key_in_use_finds_the_job_that_has_it() -> None:
    job = make_job(unique_key="k", job_type="testapp.nothing", payload={})

    result = jobqueue("enqueue", "testapp.nothing", "--unique-key", "k", "--json")
    text = jobqueue("enqueue", "testapp.nothing", "--unique-key", "k").out

    assert result.code == 0
    assert (result.document["id"], result.document["was_created"]) == (
        str(job.pk),
        False,
    )
    assert text.startswith(f"The unique key is in use by {job.pk}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["testapp.ad"], "Did you mean 'testapp.add'?"),
        (["testapp.add", "--payload", '{"z": 1}'], "testapp.add takes (x"),
        (["testapp.add", "--payload", "{x"], "the payload is not JSON"),
        (["testapp.add", "--payload", "[1]"], "the payload is an array: expected"),
        (["testapp.add", "--payload", "null"], "the payload is the value null"),
        (["testapp.add", "--payload", '"a"'], "the payload is a string"),
        (["testapp.add", "--payload", "1"], "the payload is a number"),
        (["testapp.nothing", "--queue", "a b"], "A queue name has 1 to 64"),
        (["testapp.nothing", "--queue", ""], "A queue name has 1 to 64"),
        (["testapp.nothing", "--priority", "101"], "whole number from -100 to 100"),
        (["testapp.nothing", "--max-attempts", "0"], "whole number from 1 to 32,000"),
        (["testapp.nothing", "--delay", "soon"], "'soon' is not a duration: expected"),
        (["testapp.nothing", "--delay=-5"], "'-5' is not a duration: expected"),
        (["testapp.nothing", "--delay", "99999d"], "is not a duration"),
        (["testapp.nothing", "--at", "tomorrow"], "'tomorrow' is not a time"),
        (["testapp.nothing", "--at", "2026-02-31"], "'2026-02-31' is not a time"),
        (["testapp.nothing", "--unique-key", "k" * 256], "unique_key is a text of 1"),
        (["testapp.nothing", "--at", "2099-01-01", "--delay", "1"], "not allowed with"),
        ([], "required: type"),
    ],
)
def test_a_wrong_value_is_a_usage_error_that_says_what_was_expected(
    arguments: list[str], expected: str
) -> None:
    result = jobqueue("enqueue", *arguments)

    assert (result.code, result.out) == (2, "")
    assert expected in result.err
    assert not Job.objects.exists()


def test_a_refused_job_is_a_json_document_too() -> None:
    result = jobqueue("enqueue", "testapp.ad", "--json")

    assert result.code == 2
    assert list(result.document) == ["error"]


def test_times_of_a_document_are_utc_and_durations_seconds() -> None:
    make_job(unique_key="k", job_type="testapp.nothing", timeout=timedelta(seconds=90))

    with timezone.override("Asia/Kolkata"):
        result = jobqueue("enqueue", "testapp.nothing", "--unique-key", "k", "--json")

    document = json.loads(result.out)
    assert document["created_at"].endswith("+00:00")
    assert document["timeout"] == 90.0
