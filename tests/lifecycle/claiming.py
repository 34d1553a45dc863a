"""Claims of the tests, by a worker that is only an id."""

from __future__ import annotations

from uuid import UUID, uuid4

from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.storage.claims import Claim
from django_jobqueue.storage.database import Database

WORKER = uuid4()


def claim(
    database: Database,
    *,
    limit: int = 10,
    queue: str = "default",
    worker: UUID = WORKER,
) -> list[Claim]:
    """Claim jobs of one queue."""
    return claim_jobs(database, {queue: limit}, worker_id=worker)


def claim_one(database: Database, *, worker: UUID = WORKER) -> Claim:
    """Claim the only job there is."""
    [claimed] = claim(database, worker=worker)
    return claimed
