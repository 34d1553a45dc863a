"""What is logged and sent for the ends and promotions of jobs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from django_jobqueue.failures import Failure
from django_jobqueue.job_log import JobLog, report_promoted
from django_jobqueue.lifecycle.promote import Promoted
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import Crashed
from django_jobqueue.signals import job_promoted, job_retried
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from django_jobqueue.storage.ownership import OwnedJob, make_claim
from django_jobqueue.worker.worker import Worker
from tests.factories import make_job

OWNED = OwnedJob(
    id=uuid4(),
    lease_token=2,
    attempt=1,
    job_type="app.mail",
    queue="default",
    is_cancel_requested=False,
    crashes=0,
    lost=0,
    given_back=0,
    max_attempts=None,
    backoff=None,
    claimed_at=datetime(2026, 1, 1, tzinfo=UTC),
)


def test_a_crash_is_reported_as_a_retry_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failure = Failure(exception_class="WorkerCrashed", message="It died.")
    delay = timedelta(seconds=2)
    crashed = Crashed(delay=delay, failure=failure, is_alone=False)
    heard: list[dict[str, Any]] = []

    def listen(signal: Any, sender: Any, **values: Any) -> None:
        heard.append(values)

    job_retried.connect(listen)
    try:
        with caplog.at_level(logging.WARNING, logger="django_jobqueue.jobs"):
            ending = Ending(claim=make_claim(OWNED), outcome=crashed, is_taken=True)
            JobLog(uuid4(), is_complete=True).report_ended(ending)
    finally:
        job_retried.disconnect(listen)

    [values] = heard
    assert (values["job_id"], values["attempt"]) == (OWNED.id, 1)
    assert (values["error"], values["delay"]) == ("WorkerCrashed: It died.", delay)
    assert "job retries" in caplog.text


def test_sys_exit_of_a_receiver_does_not_end_the_thread_that_reports(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def leave(**values: Any) -> None:
        raise SystemExit(3)

    job_promoted.connect(leave)
    try:
        with caplog.at_level(logging.ERROR, logger="django_jobqueue.worker"):
            promoted = Promoted(OWNED.id, "app.mail", "default", 1)
            report_promoted([promoted], worker_id=uuid4())
    finally:
        job_promoted.disconnect(leave)
    assert 'a receiver of a signal failed error="SystemExit: 3"' in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_worker_reports_each_job_that_it_promotes() -> None:
    due = make_job(scheduled=True, run_at=timezone.now() - timedelta(seconds=1))
    make_job(scheduled=True)
    worker = Worker(get_options())
    heard: list[dict[str, Any]] = []

    def listen(signal: Any, sender: Any, **values: Any) -> None:
        heard.append(values)

    job_promoted.connect(listen)
    try:
        worker.claimer._promoter.promote(Database(alias="default"))
    finally:
        job_promoted.disconnect(listen)
    assert heard == [
        {
            "job_id": due.pk,
            "job_type": "testapp.add",
            "queue": "default",
            "worker_id": worker.id,
        }
    ]
