"""Claim: pending → running."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.storage.claims import Suspects
from django_jobqueue.storage.database import Database
from tests.factories import make_job
from tests.lifecycle.claiming import WORKER, claim


def test_claim_makes_the_job_running_under_a_new_token(database: Database) -> None:
    job = make_job(payload={"x": 7}, lease_token=4, attempts=1, max_attempts=9)

    [claimed] = claim(database)

    job.refresh_from_db()
    assert (job.status, job.worker_id, job.claimed_at) == (
        "running",
        WORKER,
        claimed.claimed_at,
    )
    assert (job.lease_token, job.attempts) == (5, 2)
    assert (claimed.id, claimed.lease_token, claimed.attempt) == (job.pk, 5, 2)
    assert (claimed.job_type, claimed.max_attempts) == ("testapp.add", 9)
    assert claimed.payload.replace(" ", "") == '{"x":7}'


def test_claim_takes_the_lowest_rank_first(database: Database) -> None:
    ranks = [30, 10, 20]
    jobs = {rank: make_job(rank=rank) for rank in ranks}

    claimed = claim(database, limit=2)

    assert [c.id for c in claimed] == [jobs[10].pk, jobs[20].pk]


def test_claim_takes_the_older_of_two_equal_ranks(database: Database) -> None:
    first, second = make_job(rank=1), make_job(rank=1)

    assert [c.id for c in claim(database)] == [first.pk, second.pk]


def test_claim_takes_the_quota_of_each_queue(database: Database) -> None:
    for queue in ("high", "low", "other"):
        for _ in range(3):
            make_job(queue=queue)

    claimed = claim_jobs(database, {"high": 2, "low": 1}, worker_id=WORKER)

    assert sorted(c.queue for c in claimed) == ["high", "high", "low"]


def test_claim_takes_pending_jobs_only(database: Database) -> None:
    make_job(scheduled=True)
    make_job(running=True)
    make_job(succeeded=True)
    make_job(cancelled=True)

    assert claim(database) == []


def test_two_claims_never_share_a_job(database: Database) -> None:
    for _ in range(5):
        make_job()

    first = claim(database, limit=3)
    second = claim(database, limit=3, worker=uuid4())

    ids = [c.id for c in first + second]
    assert len(ids) == len(set(ids)) == 5


@pytest.mark.parametrize(
    ("suspects", "ranks"),
    [
        (Suspects.INCLUDED, [1, 2, 3, 4]),
        (Suspects.EXCLUDED, [2, 4]),
        (Suspects.ONLY, [1, 3]),
    ],
)
def test_a_claim_takes_suspects_too_not_or_only(
    database: Database, suspects: Suspects, ranks: list[int]
) -> None:
    for rank in (4, 3, 2, 1):
        make_job(rank=rank, isolate=rank % 2 == 1)

    claimed = claim_jobs(database, {"default": 10}, worker_id=WORKER, suspects=suspects)

    assert [c.rank for c in claimed] == ranks
    assert Job.objects.counts()["running"] == len(ranks)


@pytest.mark.parametrize("suspects", [Suspects.EXCLUDED, Suspects.ONLY])
def test_a_claim_fills_its_quotas_past_those_it_must_not_take(
    database: Database, suspects: Suspects
) -> None:
    is_wanted = suspects is Suspects.ONLY
    for queue in ("a", "b"):
        for rank in range(5):
            make_job(queue=queue, rank=rank, isolate=not is_wanted)
        for rank in range(5, 10):
            make_job(queue=queue, rank=rank, isolate=is_wanted)
    make_job(queue="other", isolate=is_wanted)

    claimed = claim_jobs(
        database, {"a": 2, "b": 1}, worker_id=WORKER, suspects=suspects
    )

    assert [(c.queue, c.rank) for c in claimed] == [("a", 5), ("b", 5), ("a", 6)]


def test_a_claimed_suspect_is_a_claim_like_any_other(database: Database) -> None:
    job = make_job(payload={"x": 7}, lease_token=4, attempts=1, crashes=1, isolate=True)

    [claimed] = claim_jobs(
        database, {"default": 1}, worker_id=WORKER, suspects=Suspects.ONLY
    )

    job.refresh_from_db()
    assert (job.status, job.worker_id) == ("running", WORKER)
    assert (job.crashes, job.isolate) == (1, True)
    assert (claimed.id, claimed.lease_token, claimed.attempt) == (job.pk, 5, 2)
    assert claimed.payload.replace(" ", "") == '{"x":7}'
    assert claimed.claimed_at == job.claimed_at


def test_a_claim_knows_that_its_job_has_expired(database: Database) -> None:
    make_job(expires_at=timezone.now() - timedelta(seconds=1))

    [claimed] = claim(database)

    assert claimed.is_expired
