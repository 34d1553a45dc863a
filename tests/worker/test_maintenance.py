"""Maintenance goes on after trouble, and prunes in bounded batches."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.lifecycle.beat import BeatReply
from django_jobqueue.options import get_options
from django_jobqueue.worker.maintenance import Maintenance
from django_jobqueue.worker.worker import Worker
from tests.factories import make_job, make_worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def maintenance() -> Maintenance:
    """Of a worker whose heart has been steady, and that has not started anything."""
    worker = Worker(get_options())
    worker.heartbeat.reply = BeatReply(is_steady=True, is_someone_silent=True)
    worker.maintenance._next_rare = 0.0
    return worker.maintenance


def make_prunable_job() -> Job:
    yesterday = timezone.now() - timedelta(days=1)
    return make_job(
        succeeded=True,
        finished_at=yesterday - timedelta(days=1),
        prune_at=yesterday,
    )


@pytest.mark.postgresql
def test_pruning_goes_on_after_its_connection_was_ended(
    maintenance: Maintenance,
) -> None:
    make_prunable_job()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        backend = cursor.fetchone()[0]
    _end_backend(backend)

    # The first step fails, as it must; the next one has a connection again.
    maintenance.loop._try_step()
    maintenance._next_rare = 0.0
    maintenance.loop._try_step()
    maintenance.loop._close()

    assert not Job.objects.exists()


def _end_backend(backend: int) -> None:
    import psycopg

    params = connection.get_connection_params()
    params.pop("cursor_factory")
    params.pop("context")
    with psycopg.connect(**params) as session:
        session.execute("SELECT pg_terminate_backend(%s, 5000)", [backend])


def test_a_worker_rescues_only_while_its_own_heart_is_steady(
    maintenance: Maintenance,
) -> None:
    silent = make_worker(last_seen_at=timezone.now() - timedelta(minutes=5))
    job = make_job(running=True, worker_id=silent.pk)
    maintenance._heartbeat.reply = BeatReply(is_steady=False, is_someone_silent=True)
    maintenance.loop._try_step()
    job.refresh_from_db()
    assert job.status == "running"

    maintenance._heartbeat.reply = BeatReply(is_steady=True, is_someone_silent=True)
    maintenance.loop._try_step()
    maintenance.loop._close()
    job.refresh_from_db()
    assert job.status == "pending"


def test_pruning_takes_a_batch_at_a_time_and_comes_back_soon(
    maintenance: Maintenance,
) -> None:
    long_ago = timezone.now() - timedelta(days=2)
    Job.objects.bulk_create(
        Job(
            job_type="testapp.nothing",
            status="succeeded",
            finished_at=long_ago,
            prune_at=long_ago + timedelta(days=1),
            worker_id=None,
            finished_by=uuid4(),
        )
        for _ in range(501)
    )

    delays = [maintenance.loop._try_step() for _ in range(3)]
    maintenance.loop._close()

    assert not Job.objects.exists()
    assert max(delays[:2]) < 0.1 < delays[2]
