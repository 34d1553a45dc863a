"""Rows that somebody else holds: one delays itself only, never a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from django_jobqueue import Job, JobSpec
from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.lifecycle.database import Database
from django_jobqueue.lifecycle.endings import Ending
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import Succeeded
from django_jobqueue.worker.connections import close_database, open_database
from tests.lifecycle.claiming import WORKER

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def own(transactional_db: None) -> Iterator[Database]:
    """A worker's own connection."""
    db = open_database("default", name="test")
    yield db
    close_database(db)


@pytest.fixture
def somebody(transactional_db: None) -> Iterator[Any]:
    """Another session, in a transaction of its own."""
    import psycopg

    params = connection.get_connection_params()
    params.pop("cursor_factory")
    params.pop("context")
    with psycopg.connect(**params) as session:
        yield session
        session.rollback()


def hold(somebody: Any, id: UUID) -> None:
    somebody.execute("SELECT 1 FROM jobqueue_job WHERE id = %s FOR UPDATE", [id])


def test_one_held_row_of_200_is_finished_with_the_next_batch(
    own: Database, somebody: Any
) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(200))
    claims = claim_jobs(own, {"default": 200}, worker_id=WORKER)
    endings = [Ending(claim=claim, outcome=Succeeded()) for claim in claims]
    hold(somebody, claims[50].id)

    first = finish_attempts(own, endings, worker_id=WORKER, options=get_options())

    assert (len(first.done), len(first.lost)) == (199, 0)
    assert [ending.claim for ending in first.busy] == [claims[50]]
    assert Job.objects.counts()["succeeded"] == 199

    somebody.rollback()
    second = finish_attempts(own, first.busy, worker_id=WORKER, options=get_options())
    assert len(second.done) == 1
    assert Job.objects.counts()["succeeded"] == 200


def test_claim_skips_jobs_locked_by_another_worker(
    own: Database, somebody: Any
) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(3))
    first = Job.objects.order_by("rank", "id").first()
    assert first is not None
    hold(somebody, first.pk)

    claims = claim_jobs(own, {"default": 3}, worker_id=WORKER)

    assert len(claims) == 2
    assert first.pk not in {claim.id for claim in claims}


def test_a_job_of_a_transaction_that_commits_late_is_claimed_after_younger_ones(
    own: Database, somebody: Any
) -> None:
    """Its rank is older than what was claimed meanwhile: it must not be stranded."""
    somebody.execute(
        "INSERT INTO jobqueue_job (id, job_type, queue, status, rank, payload)"
        " VALUES (gen_random_uuid(), 'testapp.nothing', 'default', 'pending', 1, '{}')"
    )
    Job.objects.enqueue("testapp.nothing")
    assert len(claim_jobs(own, {"default": 10}, worker_id=WORKER)) == 1

    somebody.commit()

    [late] = claim_jobs(own, {"default": 10}, worker_id=WORKER)
    assert late.rank == 1
