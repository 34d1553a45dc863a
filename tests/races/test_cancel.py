"""A cancel that meets another write of the same row is not forgotten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from django_jobqueue import Job
from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.states import CancelResult
from django_jobqueue.storage.database import Database
from tests.factories import make_job
from tests.lifecycle.claiming import WORKER
from tests.races.test_locked_rows import is_waited_for, own, somebody
from tests.waiting import wait_until

__all__ = ["own", "somebody"]

RELEASE = """
    UPDATE jobqueue_job
    SET status = 'pending', worker_id = NULL, attempts = attempts - 1
    WHERE id = %s
"""

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


def test_a_job_that_is_given_back_while_it_is_cancelled_is_cancelled(
    own: Database, somebody: Any
) -> None:
    job = make_job(job_type="testapp.nothing")
    claim_jobs(own, {"default": 1}, worker_id=WORKER)
    somebody.execute(RELEASE, [job.pk])

    def cancel() -> CancelResult:
        try:
            return Job.objects.get(pk=job.pk).cancel()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as executor:
        cancelled = executor.submit(cancel)
        try:
            wait_until(lambda: is_waited_for(somebody) or cancelled.done())
        finally:
            somebody.commit()
        assert cancelled.result(30) is CancelResult.CANCELLED

    assert Job.objects.get().status == "cancelled"
