"""Ids that a live and a dead job share: neither is lost, and nothing waits for them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from django_jobqueue import DeadJob, Job, JobSpec
from django_jobqueue.exceptions import InvalidOption
from django_jobqueue.job_log import JobLog
from django_jobqueue.lifecycle.enqueue import enqueue_job
from django_jobqueue.lifecycle.enqueue_many import enqueue_jobs
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.lifecycle.requeue import requeue_jobs
from django_jobqueue.lifecycle.rescue import rescue_jobs
from django_jobqueue.models import Attempt
from django_jobqueue.options import Options
from django_jobqueue.states import SHARED_ID_META
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from tests.factories import make_dead_job, make_job
from tests.lifecycle.claiming import WORKER, claim, claim_one
from tests.lifecycle.test_finish import DIED


def make_twins(**values: Any) -> UUID:
    job = make_job(payload={"x": 2}, **values)
    make_dead_job(id=job.pk, payload={"x": 1}, lease_token=1)
    return job.pk


def enqueue(database: Database, spec: JobSpec, *, is_bulk: bool) -> None:
    if is_bulk:
        enqueue_jobs([spec], db=database)
    else:
        enqueue_job(spec, db=database)


@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_spec_whose_job_died_is_refused(
    database: Database, options: Options, is_bulk: bool
) -> None:
    spec = JobSpec("testapp.nothing")
    enqueue_job(spec, db=database)
    ending = Ending(claim=claim_one(database), outcome=DIED)
    finish_attempts(database, [ending], worker_id=WORKER, options=options)

    with pytest.raises(InvalidOption, match="among the dead jobs"):
        enqueue(database, spec, is_bulk=is_bulk)

    assert not Job.objects.exists()
    assert DeadJob.objects.get().pk == spec.id


@pytest.mark.parametrize("is_bulk", [False, True])
@pytest.mark.parametrize("key", [None, "k"])
def test_an_id_that_was_chosen_by_hand_is_looked_up(
    database: Database, key: str | None, is_bulk: bool
) -> None:
    dead = make_dead_job()
    spec = JobSpec("testapp.nothing", unique_key=key)
    spec.id = dead.pk

    with pytest.raises(InvalidOption, match=str(dead.pk)):
        enqueue(database, spec, is_bulk=is_bulk)


def test_a_fresh_spec_is_not_looked_up(
    database: Database, django_assert_max_num_queries: Any
) -> None:
    make_dead_job()
    # The portable version reads the clock, and has a savepoint inside a test.
    with django_assert_max_num_queries(1 if database.is_postgres else 4) as queries:
        job = enqueue_job(JobSpec("testapp.nothing"), db=database)
    assert job.was_created
    assert "deadjob" not in str(queries.captured_queries)


def test_a_spec_that_was_used_gives_back_its_live_job(database: Database) -> None:
    spec = JobSpec("testapp.nothing")
    assert enqueue_job(spec, db=database).was_created
    again = enqueue_job(spec, db=database)
    assert (again.pk, again.was_created) == (spec.id, False)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_death_beside_a_dead_twin_gets_another_id(
    database: Database,
    options: Options,
    is_taken: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    twin = make_twins(meta={"a": 1})
    others = [make_job(job_type="testapp.nothing") for _ in range(3)]
    endings = [
        Ending(claim=claimed, outcome=DIED, is_taken=is_taken)
        for claimed in claim(database)
    ]

    report = finish_attempts(database, endings, worker_id=WORKER, options=options)

    assert len(report.done) == 4
    assert not Job.objects.exists()
    assert set(DeadJob.objects.values_list("pk", flat=True)) > {
        twin,
        *(job.pk for job in others),
    }
    dead = DeadJob.objects.get(payload={"x": 2})
    assert dead.pk != twin
    assert dead.meta == {"a": 1, SHARED_ID_META: str(twin)}
    assert DeadJob.objects.get(pk=twin).payload == {"x": 1}
    assert Attempt.objects.filter(job_id=dead.pk).count() == 1
    new_ids = {ending.claim.id: ending.new_dead_id for ending in report.done}
    assert new_ids == {twin: dead.pk, **dict.fromkeys(job.pk for job in others)}
    # A log that blocks must not block the thread that writes; see SupervisorDb.
    assert not caplog.records
    log = JobLog(WORKER, is_complete=True)
    for ending in report.done:
        log.report_ended(ending)
    [line] = [text for text in caplog.messages if "has this id already" in text]
    assert f"job_id={twin} dead_job_id={dead.pk}" in line


def test_a_loss_beside_a_dead_twin_gets_another_id(
    database: Database, options: Options
) -> None:
    twin = make_twins(max_attempts=1)
    make_job(max_attempts=1, payload={"x": 3})
    claim(database)

    rescued = rescue_jobs(database, options=options).jobs

    dead = DeadJob.objects.get(payload={"x": 2})
    assert {job.new_dead_id for job in rescued} == {None, dead.pk}
    assert not Job.objects.exists()
    payloads = DeadJob.objects.values_list("payload", flat=True)
    assert sorted(payload["x"] for payload in payloads) == [1, 2, 3]
    assert dead.meta == {SHARED_ID_META: str(twin)}


def test_a_requeue_beside_a_live_twin_loses_neither(database: Database) -> None:
    twin = make_twins()
    other = make_dead_job()

    counts = requeue_jobs(DeadJob.objects.all(), db=database)

    assert (counts.requeued, counts.key_in_use) == (1, 1)
    assert Job.objects.get(pk=twin).payload == {"x": 2}
    assert DeadJob.objects.get().pk == twin
    assert Job.objects.filter(pk=other.pk).exists()


def test_a_held_row_with_a_dead_twin_is_not_taken_for_ended(
    database: Database, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have the token of the claim: only the live one counts."""
    twin = make_twins()
    claimed = claim_one(database)
    assert claimed.lease_token == 1
    ending = Ending(claim=claimed, outcome=DIED)
    # As if another session held the row: the statement passes over it.
    if database.is_postgres:
        from django_jobqueue.lifecycle import finish

        monkeypatch.setattr(finish, "write_died", lambda *_: [])
        report = finish_attempts(database, [ending], worker_id=WORKER, options=options)
        assert (report.busy, report.done) == ([ending], [])
    assert Job.objects.get(pk=twin).status == "running"


@pytest.mark.parametrize("is_bulk", [False, True])
def test_the_promise_of_one_start_is_stored_with_the_job(
    database: Database, options: Options, is_bulk: bool
) -> None:
    """So that a worker which does not know the handler keeps it at a rescue."""
    spec = JobSpec("testapp.crash_once_only")
    enqueue(database, spec, is_bulk=is_bulk)
    assert Job.objects.get(pk=spec.id).max_attempts == 1
    claim_one(database)

    [rescued] = rescue_jobs(database, options=options).jobs

    assert rescued.is_dead
    assert not Job.objects.exists()
