"""A claim whose reply never arrives: the rows are ours and we never saw them."""

from __future__ import annotations

import pytest
from django.conf import settings

from django_jobqueue import Job
from django_jobqueue.models import Attempt
from tests.processes import WorkerProcess
from tests.proxy import CuttingProxy
from tests.testapp import jobs

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(120),
]


def test_jobs_of_a_claim_without_reply_are_pending_again_and_run(
    worker_env: dict[str, str],
) -> None:
    database = settings.DATABASES["default"]
    with CuttingProxy(database["HOST"], int(database["PORT"])) as proxy:
        url = f"postgres://{database['USER']}@127.0.0.1:{proxy.port}/postgres"
        env = {**worker_env, "DATABASE_URL": url}
        proxy.cut_once(b"cut me here")
        ids = [jobs.end_as.enqueue("cut me here", touch="", until="").pk for _ in range(5)]
        with WorkerProcess(env, JOBQUEUE_HEARTBEAT_INTERVAL="0.5") as worker:
            done = [Job(pk=id).wait(timeout=30) for id in ids]
            assert worker.stop() == 0
    assert proxy.cuts == 1
    # Claimed twice, run once: the attempt nobody saw was given back.
    assert [(job.status, job.attempts, job.lease_token) for job in done] == [
        ("succeeded", 1, 2)
    ] * 5
    outcomes = Attempt.objects.order_by("job_id", "lease_token")
    assert list(outcomes.values_list("outcome", flat=True)) == [
        "released",
        "succeeded",
    ] * 5


def test_an_end_whose_reply_is_lost_is_written_once(worker_env: dict[str, str]) -> None:
    database = settings.DATABASES["default"]
    with CuttingProxy(database["HOST"], int(database["PORT"])) as proxy:
        url = f"postgres://{database['USER']}@127.0.0.1:{proxy.port}/postgres"
        env = {**worker_env, "DATABASE_URL": url}
        with WorkerProcess(env, "--concurrency", "1") as worker:
            worker.wait_until_started()
            jobs.nothing.enqueue().wait(timeout=30)
            job = jobs.fail_until.enqueue(attempt=2)
            proxy.cut_once(str(job.pk).encode())
            job = job.wait(timeout=30)
            assert worker.stop() == 0
    assert job.status == "succeeded"
    outcomes = Attempt.objects.filter(job_id=job.pk).order_by("lease_token")
    assert outcomes.last().outcome == "succeeded"
    assert [a.number for a in outcomes if a.outcome == "failed"] == [1]
