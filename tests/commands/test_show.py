"""`jobqueue show ID`."""

from __future__ import annotations

from uuid import UUID

import pytest

from django_jobqueue.cli.documents import ATTEMPT, FULL
from django_jobqueue.models import Attempt
from tests.commands.running import jobqueue
from tests.factories import make_dead_job, make_job, make_worker

pytestmark = pytest.mark.django_db

HOSTILE = "\x1b[31mred\x07\x00\x9b"


def test_show_prints_every_field_of_a_live_job() -> None:
    job = make_job(
        succeeded=True, payload={"x": {"y": [1]}}, result={"sum": 2}, tags=["a", "b"]
    )

    result = jobqueue("show", job.pk)

    assert (result.code, result.err) == (0, "")
    assert result.lines[0].split() == ["id", str(job.pk)]
    fields = [line.split(maxsplit=1) for line in result.lines]
    assert ["status", "succeeded"] in fields
    assert ["tags", "a, b"] in fields
    assert '      "y": [' in result.lines
    assert '    "sum": 2' in result.lines


def test_show_prints_a_dead_job_with_its_attempts() -> None:
    dead = make_dead_job(fingerprint="abc")
    for number in (1, 2):
        Attempt.objects.create(
            job_id=dead.pk,
            lease_token=number,
            number=number,
            outcome="failed",
            traceback=f"Traceback\n  line {number}\nValueError: no",
        )

    result = jobqueue("show", dead.pk)

    assert result.code == 0
    assert "status       dead (exception)" in result.lines
    assert "fingerprint  abc" in result.lines
    assert result.lines.index("Attempt 1: failed") < result.lines.index(
        "Attempt 2: failed"
    )
    assert "    line 2" in result.lines


@pytest.mark.parametrize("make", [make_job, make_dead_job])
def test_a_job_has_the_documented_keys_live_or_dead(make: type) -> None:
    job = make()
    Attempt.objects.create(job_id=job.pk, lease_token=1)

    document = jobqueue("show", job.pk, "--json").document

    [attempt] = document.pop("attempts_made")
    assert list(document) == list(FULL)
    assert list(attempt) == list(ATTEMPT)
    assert document["payload"] == {"x": 1}


def test_a_running_job_that_was_asked_to_stop_says_so() -> None:
    job = make_job(running=True)
    job.cancel()

    assert "running, asked to stop" in jobqueue("show", job.pk).out


def test_a_pending_job_that_no_live_worker_serves_says_so() -> None:
    job = make_job(queue="mail")
    hint = "No live worker serves the queue mail. Start one with: manage.py runworker"
    make_worker(queues={"default": 1})
    assert hint in jobqueue("show", job.pk).out
    make_worker(queues={"mail": 1})
    assert hint not in jobqueue("show", job.pk).out


def test_the_beginning_of_an_id_is_enough_if_only_one_has_it() -> None:
    job = make_job(id=UUID("01997c3e-5b1a-7c3d-8e4f-1a2b3c4d5e6f"))
    dead = make_dead_job(id=UUID("01997c3e-ffff-7c3d-8e4f-1a2b3c4d5e6f"))

    assert jobqueue("show", "01997C3E-5B", "--json").document["id"] == str(job.pk)
    assert jobqueue("show", "01997c3eff", "--json").document["id"] == str(dead.pk)


def test_the_beginning_of_several_ids_is_a_usage_error_that_lists_them() -> None:
    live = make_job(id=UUID("01997c3e-5b1a-7c3d-8e4f-1a2b3c4d5e6f"))
    dead = make_dead_job(id=UUID("01997c3e-ffff-7c3d-8e4f-1a2b3c4d5e6f"))

    result = jobqueue("show", "01997c3e")

    assert (result.code, result.out) == (2, "")
    assert f"  {live.pk}\n  {dead.pk}\n" in result.err


@pytest.mark.parametrize(
    "id", ["", "01997c3", "x1997c3e", "01997c3e-5b1a-7c3d-8e4f-1a2b3c4d5e6f0"]
)
def test_a_wrong_id_is_a_usage_error_that_shows_the_format(id: str) -> None:
    result = jobqueue("show", id)

    assert result.code == 2
    assert f"{id!r} is not the id of a job: expected a UUID such as" in result.err


def test_a_job_that_does_not_exist_is_code_1() -> None:
    id = "00000000-0000-7000-8000-000000000000"
    message = f"There is no job {id}, live or dead."

    text, document = jobqueue("show", id), jobqueue("show", id, "--json")

    assert (text.code, text.out, text.err) == (1, "", f"{message}\n")
    assert (document.code, document.document) == (1, {"error": message})


def test_control_characters_of_a_job_are_escaped() -> None:
    text = HOSTILE.replace("\x00", "")
    dead = make_dead_job(error=text, payload={"x": text, text: 1})
    Attempt.objects.create(job_id=dead.pk, message=text, traceback=f"a\n\t{text}")
    Attempt.objects.create(job_id=dead.pk, message=text, lease_token=2)

    result = jobqueue("show", dead.pk)

    assert result.code == 0
    assert all(c.isprintable() or c == "\n" for c in result.out)
    assert r"\x1b[31mred\x07\x9b" in result.out
