"""Rescue: running → pending or dead, when the owner is gone."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from django_jobqueue import DeadJob, Job
from django_jobqueue.lifecycle import rescue
from django_jobqueue.lifecycle.rescue import forget_silent_workers, rescue_jobs
from django_jobqueue.models import Attempt, WorkerHeartbeat
from django_jobqueue.options import Options
from django_jobqueue.outcomes import LOST_MESSAGE as MESSAGE
from django_jobqueue.storage.database import Database
from tests.factories import make_job, make_worker

LONG_AGO = timedelta(minutes=5)
# A handler with max_attempts=1.
ONCE = "testapp.crash_once_only"


def make_silent_worker() -> WorkerHeartbeat:
    return make_worker(last_seen_at=timezone.now() - LONG_AGO)


def test_rescue_makes_the_job_of_a_silent_worker_pending(
    database: Database, options: Options
) -> None:
    worker = make_silent_worker()
    job = make_job(running=True, worker_id=worker.pk, priority=3)

    [rescued] = rescue_jobs(database, options=options).jobs

    job.refresh_from_db()
    assert (job.status, job.worker_id) == ("pending", None)
    assert (job.lease_token, job.attempts, job.lost) == (2, 0, 1)
    assert job.error == f"WorkerLost: {MESSAGE}"
    assert (rescued.id, rescued.status) == (job.pk, "pending")
    attempt = Attempt.objects.get(job_id=job.pk)
    assert (attempt.outcome, attempt.lease_token, attempt.number) == ("lost", 1, 1)
    assert attempt.worker_id == worker.pk


def test_rescue_leaves_the_jobs_of_live_workers(
    database: Database, options: Options
) -> None:
    job = make_job(running=True, worker_id=make_worker().pk)
    make_silent_worker()

    assert rescue_jobs(database, options=options).jobs == []

    job.refresh_from_db()
    assert job.status == "running"


def test_rescue_takes_jobs_whose_owner_has_no_heartbeat_at_all(
    database: Database, options: Options
) -> None:
    job = make_job(running=True, worker_id=uuid4())

    assert len(rescue_jobs(database, options=options).jobs) == 1

    job.refresh_from_db()
    assert job.status == "pending"


def test_a_loss_leaves_a_suspect_what_it_is(
    database: Database, options: Options
) -> None:
    worker = make_silent_worker()
    suspect = {"worker_id": worker.pk, "crashes": 2, "isolate": True}
    job = make_job(running=True, **suspect)
    last = make_job(running=True, lost=options.max_lost - 1, **suspect)

    assert len(rescue_jobs(database, options=options).jobs) == 2

    job.refresh_from_db()
    dead = DeadJob.objects.get(pk=last.pk)
    assert (job.status, job.crashes, job.isolate) == ("pending", 2, True)
    assert (dead.reason, dead.crashes, dead.isolate) == ("lost", 2, True)


def test_a_second_loss_waits_longer_than_the_first(
    database: Database, options: Options
) -> None:
    worker = make_silent_worker()
    job = make_job(running=True, worker_id=worker.pk, lost=3)

    [rescued] = rescue_jobs(database, options=options).jobs

    job.refresh_from_db()
    assert (job.status, rescued.status) == ("scheduled", "scheduled")
    delay = job.run_at - timezone.now()
    assert timedelta(seconds=4) < delay <= timedelta(seconds=8)


def test_the_tenth_loss_is_the_death_of_a_job(
    database: Database, options: Options
) -> None:
    worker = make_silent_worker()
    job = make_job(running=True, worker_id=worker.pk, lost=9, unique_key="k")

    [rescued] = rescue_jobs(database, options=options).jobs

    dead = DeadJob.objects.get(pk=job.pk)
    assert rescued.is_dead
    assert not Job.objects.exists()
    assert (dead.reason, dead.lost, dead.lease_token) == ("lost", 10, 2)
    assert dead.unique_key == "k"
    assert Attempt.objects.get().outcome == "lost"


@pytest.mark.parametrize("named_by", ["job", "handler"])
def test_a_job_that_may_start_once_is_dead_after_a_loss(
    database: Database, options: Options, named_by: str
) -> None:
    limit = 1 if named_by == "job" else None
    job = make_job(
        running=True,
        worker_id=make_silent_worker().pk,
        job_type="testapp.add" if named_by == "job" else ONCE,
        max_attempts=limit,
    )

    rescue_jobs(database, options=options)

    assert DeadJob.objects.get(pk=job.pk).reason == "lost"


def test_the_job_decides_before_the_handler_how_often_it_may_start(
    database: Database, options: Options
) -> None:
    job = make_job(
        running=True,
        worker_id=make_silent_worker().pk,
        job_type=ONCE,
        max_attempts=2,
    )

    rescue_jobs(database, options=options)

    job.refresh_from_db()
    assert job.status == "pending"


def test_a_worker_that_beats_again_is_spared(
    database: Database, options: Options
) -> None:
    worker = make_silent_worker()
    job = make_job(running=True, worker_id=worker.pk)
    moment = timezone.now()
    WorkerHeartbeat.objects.filter(pk=worker.pk).update(last_seen_at=moment)

    assert rescue_jobs(database, options=options, now=moment).jobs == []

    job.refresh_from_db()
    assert job.status == "running"


@pytest.mark.parametrize("lost", [0, 9], ids=["goes back", "dies"])
def test_a_worker_that_beats_after_the_first_look_is_spared(
    database: Database,
    options: Options,
    monkeypatch: pytest.MonkeyPatch,
    lost: int,
) -> None:
    worker = make_worker()
    job = make_job(running=True, worker_id=worker.pk, lost=lost)
    # It was silent a moment ago, when rescue looked for such workers.
    monkeypatch.setattr(rescue, "find_silent_workers", lambda *a, **k: [worker.pk])

    assert rescue_jobs(database, options=options).jobs == []

    job.refresh_from_db()
    assert (job.status, job.lease_token) == ("running", 1)


def test_rescue_is_bounded(database: Database, options: Options) -> None:
    worker = make_silent_worker()
    for _ in range(501):
        make_job(running=True, worker_id=worker.pk)

    assert len(rescue_jobs(database, options=options).jobs) == 500
    assert len(rescue_jobs(database, options=options).jobs) == 1
    assert rescue_jobs(database, options=options).jobs == []


@pytest.mark.sqlite
def test_on_sqlite_a_silent_process_that_lives_is_spared_for_a_while(
    database: Database, options: Options
) -> None:
    host = socket.gethostname()
    worker = make_worker(
        host=host, pid=os.getpid(), last_seen_at=timezone.now() - timedelta(minutes=2)
    )
    make_job(running=True, worker_id=worker.pk)

    assert rescue_jobs(database, options=options).jobs == []
    # The pid may have gone to another process: not for ever.
    short = replace(options, heartbeat_ttl=timedelta(seconds=1))
    assert len(rescue_jobs(database, options=short).jobs) == 1


def test_the_row_of_a_dead_worker_goes_after_an_hour_without_jobs(
    database: Database, options: Options
) -> None:
    idle = make_worker(last_seen_at=timezone.now() - timedelta(hours=2))
    owner = make_worker(last_seen_at=timezone.now() - timedelta(hours=2))
    fresh = make_silent_worker()
    make_job(running=True, worker_id=owner.pk)

    assert forget_silent_workers(database) == 1

    left = set(WorkerHeartbeat.objects.values_list("pk", flat=True))
    assert left == {owner.pk, fresh.pk}
    assert idle.pk not in left
