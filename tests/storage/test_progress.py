"""Progress of running attempts, fenced like their end."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from django_jobqueue import Job
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.progress import write_progress
from tests.factories import make_job
from tests.lifecycle.claiming import WORKER, claim, claim_one

WORD = {"fraction": 0.5, "note": "half"}


def test_progress_of_several_attempts_is_written_at_once(database: Database) -> None:
    make_job()
    make_job()
    claims = claim(database)

    lost = write_progress(database, dict.fromkeys(claims, WORD), worker_id=WORKER)

    assert lost == []
    assert [job.progress for job in Job.objects.all()] == [WORD, WORD]


@pytest.mark.parametrize("change", [{"lease_token": 2}, {"worker_id": uuid4()}])
def test_progress_of_a_job_that_was_taken_away_is_refused(
    database: Database, change: dict[str, Any]
) -> None:
    job = make_job()
    claimed = claim_one(database)
    Job.objects.filter(pk=job.pk).update(**change)

    assert write_progress(database, {claimed: WORD}, worker_id=WORKER) == [claimed]

    job.refresh_from_db()
    assert job.progress is None
