"""Cancel is a promise: a requested cancel outlives the attempt it was asked of."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

from django_jobqueue import DeadJob, Job
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.lifecycle.rescue import rescue_jobs
from django_jobqueue.models import Attempt
from django_jobqueue.options import Options
from django_jobqueue.outcomes import Cancelled, Outcome, Succeeded
from django_jobqueue.states import CancelResult
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from tests.factories import make_job
from tests.lifecycle.claiming import WORKER, claim_one
from tests.lifecycle.test_finish import (
    CRASHED,
    CRASHED_FOR_GOOD,
    DIED,
    RELEASED,
    RETRIED,
    SNOOZED,
    UNKNOWN,
)


def repr_kind(outcome: Outcome) -> str:
    return f"{type(outcome).__name__}-{getattr(outcome, 'label', '')}"


ENDS = [RETRIED, RELEASED, SNOOZED, UNKNOWN, CRASHED, DIED, CRASHED_FOR_GOOD]


@pytest.mark.parametrize("is_taken", [False, True])
@pytest.mark.parametrize("outcome", ENDS, ids=repr_kind)
def test_whatever_ends_an_attempt_that_was_asked_to_stop_cancels_its_job(
    database: Database, options: Options, outcome: Outcome, is_taken: bool
) -> None:
    job = make_job(job_type="testapp.nothing", unique_key="k")
    claimed = claim_one(database)
    assert job.cancel() is CancelResult.REQUESTED
    ending = Ending(claim=claimed, outcome=outcome, is_taken=is_taken)

    report = finish_attempts(database, [ending], worker_id=WORKER, options=options)

    assert [done.outcome for done in report.done] == [
        Cancelled("cancelled while running")
    ]
    assert (report.busy, report.lost, report.pending) == ([], [], {})
    job.refresh_from_db()
    assert (job.status, job.error) == ("cancelled", "cancelled while running")
    assert (job.unique_key, job.worker_id) == (None, None)
    assert job.lease_token == 1 + is_taken
    assert job.finished_at is not None
    assert job.prune_at == job.finished_at + timedelta(days=7)
    assert not DeadJob.objects.exists()
    # The attempt tells its own story.
    assert Attempt.objects.get().outcome == ending.label

    # Of an end whose reply was lost, the same is told again.
    again = finish_attempts(database, [ending], worker_id=WORKER, options=options)
    assert [type(done.outcome) for done in again.done] == [Cancelled]


def test_a_handler_that_returns_has_succeeded_whatever_was_asked(
    database: Database, options: Options
) -> None:
    job = make_job(job_type="testapp.nothing")
    claimed = claim_one(database)
    job.cancel()
    ending = Ending(claim=claimed, outcome=Succeeded("1"))

    finish_attempts(database, [ending], worker_id=WORKER, options=options)

    job.refresh_from_db()
    assert (job.status, job.result) == ("succeeded", 1)


@pytest.mark.parametrize("values", [{}, {"lost": 9}, {"max_attempts": 1}, {"lost": 2}])
def test_a_job_that_was_asked_to_stop_is_cancelled_by_its_rescue(
    database: Database, options: Options, values: dict[str, Any]
) -> None:
    job = make_job(job_type="testapp.nothing", unique_key="k")
    Job.objects.filter(pk=job.pk).update(**values)
    claim_one(database)
    job.cancel()

    # The worker has no heartbeat row.
    [rescued] = rescue_jobs(database, options=options).jobs

    assert (rescued.is_cancelled, rescued.is_dead) == (True, False)
    job.refresh_from_db()
    assert (job.status, job.error) == ("cancelled", "cancelled while running")
    assert (job.unique_key, job.worker_id, job.lease_token) == (None, None, 2)
    assert job.prune_at is not None
    assert not DeadJob.objects.exists()
    assert Attempt.objects.get().outcome == "lost"


@pytest.mark.parametrize("status", ["pending", "scheduled"])
def test_no_waiting_job_bears_a_request_to_stop(
    database: Database, status: str
) -> None:
    """So that claim and promote need not ask for it: cancel ends such a job at once."""
    job = make_job(job_type="testapp.nothing", status=status)
    rows = Job.objects.filter(pk=job.pk, status=status)

    with pytest.raises(IntegrityError), transaction.atomic():
        rows.update(cancel_requested_at=timezone.now())

    assert rows.get().cancel_requested_at is None
