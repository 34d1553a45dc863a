"""Rescue against a beat of the same worker, on two connections."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.utils import timezone

from django_jobqueue.lifecycle import rescue
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.lifecycle.rescue import rescue_jobs
from django_jobqueue.options import get_options
from django_jobqueue.worker.running.connections import close_database, open_database
from tests.factories import make_job, make_worker

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

BEAT = """
    UPDATE jobqueue_workerheartbeat
    SET last_seen_at = clock_timestamp()
    WHERE id = %s
"""


def test_a_beat_waits_until_the_rescue_of_its_jobs_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = make_worker(last_seen_at=timezone.now() - timedelta(minutes=5))
    job = make_job(running=True, worker_id=worker.pk)
    own = open_database("default", name="rescue")
    other = open_database("default", name="beat")
    refused: list[type[Exception]] = []

    def beat_meanwhile(*args: Any, **kwargs: Any) -> Any:
        assert other.own is not None
        other.own.execute("SET lock_timeout = '50ms'")
        try:
            other.own.execute(BEAT, [worker.pk])
        except psycopg.Error as error:
            refused.append(type(error))
        return finish_attempts(*args, **kwargs)

    monkeypatch.setattr(rescue, "finish_attempts", beat_meanwhile)
    try:
        assert len(rescue_jobs(own, options=get_options()).jobs) == 1
    finally:
        close_database(own)
        close_database(other)
    job.refresh_from_db()
    assert (job.status, job.lease_token) == ("pending", 2)
    assert refused == [psycopg.errors.LockNotAvailable]


def test_a_worker_whose_row_is_held_keeps_its_jobs() -> None:
    worker = make_worker(last_seen_at=timezone.now() - timedelta(minutes=5))
    make_job(running=True, worker_id=worker.pk)
    own = open_database("default", name="rescue")
    other = open_database("default", name="beat")
    try:
        assert other.own is not None
        with other.own.transaction():
            other.own.execute(BEAT, [worker.pk])
            assert rescue_jobs(own, options=get_options()).jobs == []
        assert rescue_jobs(own, options=get_options()).jobs == []
    finally:
        close_database(own)
        close_database(other)
