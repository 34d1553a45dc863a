"""`jobqueue run-again`."""

from __future__ import annotations

import pytest

from django_jobqueue import Job
from tests.commands.running import jobqueue
from tests.factories import make_dead_job, make_job

pytestmark = pytest.mark.django_db


def test_run_again_enqueues_a_copy() -> None:
    old = make_job(succeeded=True, payload={"x": 5})

    result = jobqueue("run-again", str(old.pk)[:13])

    new = Job.objects.exclude(pk=old.pk).get()
    assert (result.code, result.err) == (0, "")
    assert result.out == f"Enqueued {new.pk}, a copy of {old.pk}\n"
    assert (new.status, new.payload) == ("pending", {"x": 5})


def test_what_cannot_run_again_is_code_1_and_named() -> None:
    old, live = make_job(cancelled=True), make_job()
    dead = make_dead_job()

    result = jobqueue("run-again", old.pk, live.pk, dead.pk, "00000000", "--json")

    assert result.code == 1
    [enqueued] = result.document["enqueued"]
    assert enqueued["copy_of"] == str(old.pk)
    refused = {each["id"]: each["error"] for each in result.document["refused"]}
    assert "is pending; only one" in refused[str(live.pk)]
    assert f"Run: jobqueue requeue {dead.pk}" in refused[str(dead.pk)]
    assert result.document["not_found"] == ["00000000"]
    assert "There is no job 00000000" in result.err


def test_type_without_a_handler_is_refused() -> None:
    old = make_job(succeeded=True, job_type="gone.away")

    result = jobqueue("run-again", old.pk)

    assert (result.code, result.out) == (1, "")
    assert "No handler is registered for the job type 'gone.away'" in result.err
