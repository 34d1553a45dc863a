"""Signals of the arrows that run in anybody's transaction: sent once it commits."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.dispatch import Signal
from django.utils import timezone

from django_jobqueue import DeadJob, Job, JobSpec
from django_jobqueue.lifecycle.cancel import cancel_job, cancel_jobs
from django_jobqueue.lifecycle.enqueue import enqueue_job
from django_jobqueue.lifecycle.enqueue_many import enqueue_jobs
from django_jobqueue.lifecycle.prune import prune_jobs
from django_jobqueue.lifecycle.requeue import requeue_jobs
from django_jobqueue.signals import (
    job_cancelled,
    job_enqueued,
    job_requeued,
    jobs_pruned,
)
from django_jobqueue.storage.database import Database
from tests.factories import make_dead_job, make_job
from tests.testapp.jobs import add

Events = list[dict[str, Any]]


@contextmanager
def listening(signal: Signal) -> Iterator[Events]:
    """Collect what a signal says."""
    heard: Events = []

    def listen(signal: Signal, sender: None, **values: Any) -> None:
        heard.append(values)

    signal.connect(listen)
    try:
        yield heard
    finally:
        signal.disconnect(listen)


@pytest.fixture
def committed(django_capture_on_commit_callbacks: Any) -> Any:
    """Run the hooks of a block at its end, as a commit would."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


def test_an_enqueued_job_is_reported_after_the_commit(
    database: Database, committed: Any
) -> None:
    with listening(job_enqueued) as heard, committed():
        job = enqueue_job(JobSpec("testapp.add", {"x": 1}, delay=60), db=database)
        assert heard == []

    assert heard == [
        {
            "job_id": job.pk,
            "job_type": "testapp.add",
            "queue": "default",
            "run_at": job.run_at,
        }
    ]


def test_a_job_that_was_there_already_is_not_reported(
    database: Database, committed: Any
) -> None:
    make_job(unique_key="k")
    with listening(job_enqueued) as heard, committed():
        enqueue_job(JobSpec("testapp.add", {"x": 1}, unique_key="k"), db=database)
    assert heard == []


def test_of_a_bulk_each_new_job_is_reported(database: Database, committed: Any) -> None:
    make_job(unique_key="taken")
    specs = [
        add.using(delay=60).spec(1, 2),
        add.using(unique_key="free").spec(1, 2),
        add.using(unique_key="taken").spec(1, 2),
    ]
    with listening(job_enqueued) as heard, committed():
        enqueue_jobs(specs, db=database)

    assert {event["job_id"] for event in heard} == {specs[0].id, specs[1].id}
    rows = Job.objects.in_bulk([event["job_id"] for event in heard])
    assert all(event["run_at"] == rows[event["job_id"]].run_at for event in heard)


def test_a_waiting_job_that_is_cancelled_is_reported(
    database: Database, committed: Any
) -> None:
    job = make_job(attempts=2, lease_token=2)
    with listening(job_cancelled) as heard, committed():
        cancel_job(Job(pk=job.pk), reason="not needed", db=database)

    assert heard == [
        {
            "job_id": job.pk,
            "job_type": "testapp.add",
            "queue": "default",
            "attempt": 2,
            "worker_id": None,
            "reason": "not needed",
        }
    ]


def test_of_a_batch_only_the_waiting_jobs_are_reported(
    database: Database, committed: Any
) -> None:
    waiting = [make_job(), make_job(scheduled=True)]
    others = [make_job(running=True), make_job(succeeded=True)]
    with listening(job_cancelled) as heard, committed():
        cancel_jobs([job.pk for job in waiting + others], db=database)

    assert {event["job_id"] for event in heard} == {job.pk for job in waiting}
    assert {event["attempt"] for event in heard} == {0}


def test_a_requeued_job_is_reported_unless_its_key_is_in_use(
    database: Database, committed: Any
) -> None:
    dead = make_dead_job()
    make_dead_job(unique_key="k")
    make_job(unique_key="k")
    with listening(job_requeued) as heard, committed():
        requeue_jobs(DeadJob.objects.all(), delay=60, db=database)

    [event] = heard
    assert event.pop("run_at") == Job.objects.get(pk=dead.pk).run_at
    assert event == {
        "job_id": dead.pk,
        "job_type": "testapp.add",
        "queue": "default",
    }


def test_pruned_jobs_are_reported_by_the_batch(
    database: Database, committed: Any
) -> None:
    ended = timezone.now() - timedelta(days=2)
    due = ended + timedelta(days=1)
    gone = [make_job(succeeded=True, finished_at=ended, prune_at=due) for _ in "ab"]
    make_job(succeeded=True)
    with listening(jobs_pruned) as heard, committed():
        prune_jobs(database)
        prune_jobs(database)

    [event] = heard
    assert set(event["job_ids"]) == {job.pk for job in gone}


@pytest.mark.django_db(transaction=True)
def test_in_autocommit_a_signal_is_sent_at_once() -> None:
    with listening(job_enqueued) as heard:
        job = add.enqueue(1, 2)
        assert [event["job_id"] for event in heard] == [job.pk]
        job.cancel()


@pytest.mark.django_db(transaction=True)
def test_what_was_rolled_back_is_not_reported() -> None:
    with listening(job_enqueued) as heard, transaction.atomic():
        kept = add.enqueue(1, 2)
        with transaction.atomic():
            add.enqueue(3, 4)
            transaction.set_rollback(True)
    assert [event["job_id"] for event in heard] == [kept.pk]


@pytest.mark.django_db(transaction=True)
def test_in_a_transaction_made_by_hand_nothing_is_sent_and_nothing_fails() -> None:
    connection.set_autocommit(False)
    try:
        with listening(job_enqueued) as heard:
            add.enqueue(1, 2)
            connection.commit()
    finally:
        connection.set_autocommit(True)
    assert heard == []
    assert Job.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_failing_receiver_is_logged_and_the_job_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(**values: Any) -> None:
        raise ZeroDivisionError("what a receiver!")

    job_enqueued.connect(fail)
    try:
        with (
            listening(job_enqueued) as heard,
            caplog.at_level(logging.ERROR, logger="django.dispatch"),
        ):
            job = add.enqueue(1, 2)
    finally:
        job_enqueued.disconnect(fail)
    assert Job.objects.get().pk == job.pk == heard[0]["job_id"]
    assert "what a receiver!" in caplog.text


@pytest.mark.django_db
def test_no_hook_is_registered_while_nobody_listens(
    committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The relay of django.tasks does.
    monkeypatch.setattr(job_cancelled, "receivers", [])
    before = len(_list_reports())
    add.enqueue(1, 2).cancel()
    requeue_jobs(DeadJob.objects.filter(pk=make_dead_job().pk))
    assert len(_list_reports()) == before
    with listening(job_enqueued):
        add.enqueue(1, 2)
    assert len(_list_reports()) == before + 1


def _list_reports() -> list[Any]:
    hooks = [hook for _, hook, *_ in connection.run_on_commit]
    return [hook for hook in hooks if "_send_on_commit" in hook.__qualname__]
