"""Projects whose transactions keep their snapshot: REPEATABLE READ and SERIALIZABLE."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from django_jobqueue import Job, JobSpec
from django_jobqueue.exceptions import UniqueKeyBusy
from tests.processes import run_burst
from tests.testapp import jobs
from tests.testapp.models import Effect

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]
SPEC = "testapp.nothing"
LEVELS = {"repeatable read": "3", "serializable": "4"}


@pytest.fixture(params=["options", "role"])
def level(request: pytest.FixtureRequest) -> Iterator[None]:
    """REPEATABLE READ, from the project's settings or from the server's."""
    connection.close()
    with pytest.MonkeyPatch.context() as monkeypatch:
        given = {"isolation_level": 3}
        if request.param == "role":
            given = {"options": "-c default_transaction_isolation=repeatable\\ read"}
        options = {**connection.settings_dict["OPTIONS"], **given}
        monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
        yield
    connection.close()


def enqueue_elsewhere() -> None:
    """Enqueue with the key "a" on another connection, and commit."""

    def enqueue() -> None:
        try:
            jobs.nothing.using(unique_key="a").enqueue()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as executor:
        executor.submit(enqueue).result()


@pytest.mark.usefixtures("level")
def test_key_of_a_job_that_the_snapshot_shows_gives_that_job() -> None:
    enqueue_elsewhere()
    with transaction.atomic():
        job = jobs.nothing.using(unique_key="a").enqueue()
    assert not job.was_created


@pytest.mark.usefixtures("level")
def test_key_of_a_job_that_the_snapshot_hides_does_not_abort_the_transaction() -> None:
    with transaction.atomic():
        Effect.objects.create(name="kept")
        enqueue_elsewhere()
        with pytest.raises(UniqueKeyBusy, match="another transaction"):
            jobs.nothing.using(unique_key="a").enqueue()
        with pytest.raises(UniqueKeyBusy, match="another transaction"):
            Job.objects.enqueue_many([JobSpec(SPEC, unique_key="a")])
        jobs.nothing.using(unique_key="b").enqueue()
    assert Effect.objects.get().name == "kept"
    assert set(Job.objects.values_list("unique_key", flat=True)) == {"a", "b"}


@pytest.mark.slow
@pytest.mark.parametrize("number", LEVELS.values(), ids=LEVELS)
def test_atomic_job_that_reports_progress_succeeds(
    worker_env: dict[str, str], number: str
) -> None:
    job = jobs.report_progress_atomically.enqueue()
    jobs.leave_effect_atomically.enqueue(name="beside")

    log = run_burst(worker_env, "--in-process", JOBQUEUE_TEST_ISOLATION=number)

    job = job.wait(1)
    assert (job.status, job.attempts) == ("succeeded", 1)
    assert job.progress == {"fraction": 1.0, "note": "step 5"}
    assert Effect.objects.filter(name="progress").count() == 1
    assert "ERROR" not in log
