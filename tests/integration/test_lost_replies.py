"""Claims and ends whose replies are lost: the worker owns rows it never received."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings

from django_jobqueue import DeadJob, Job
from django_jobqueue.models import Attempt
from tests.processes import WorkerProcess
from tests.proxy import CuttingProxy
from tests.testapp import jobs
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
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
        marked = jobs.end_as.spec("cut me here", touch="", until="")
        ids = [
            Job.objects.enqueue(marked.job_type, marked.payload).pk for _ in range(5)
        ]
        with WorkerProcess(env, JOBQUEUE_HEARTBEAT_INTERVAL="0.5") as worker:
            done = [Job(pk=id).wait(timeout=30) for id in ids]
            assert worker.stop() == 0
    assert proxy.cuts == 1
    # Claimed twice, run once: the attempt of the lost claim was given back.
    assert [(job.status, job.attempts, job.lease_token) for job in done] == [
        ("succeeded", 1, 2)
    ] * 5
    outcomes = Attempt.objects.order_by("job_id", "lease_token")
    assert (
        list(outcomes.values_list("outcome", flat=True))
        == [
            "released",
            "succeeded",
        ]
        * 5
    )


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [("success", "succeeded"), ("snooze", "scheduled"), ("death", "dead")],
)
def test_an_end_whose_reply_is_lost_is_written_once(
    worker_env: dict[str, str], tmp_path: Path, outcome: str, expected: str
) -> None:
    started, go_on = tmp_path / "started", tmp_path / "go on"
    database = settings.DATABASES["default"]
    with CuttingProxy(database["HOST"], int(database["PORT"])) as proxy:
        url = f"postgres://{database['USER']}@127.0.0.1:{proxy.port}/postgres"
        env = {**worker_env, "DATABASE_URL": url}
        with WorkerProcess(env, "--concurrency", "1") as worker:
            worker.wait_until_started()
            job = jobs.end_as.enqueue(outcome, touch=str(started), until=str(go_on))
            wait_until(started.exists)
            # From now on only the finish names the job. Of a success only the request
            # does: the reply says just that all were written.
            if outcome == "success":
                proxy.cut_replies(b"", after=job.pk.hex.encode())
            else:
                proxy.cut_once(str(job.pk).encode())
            go_on.touch()
            wait_until(lambda: proxy.cuts)
            wait_until(lambda: worker.has_logged("finish loop works again"))
            assert not worker.has_logged("lease lost")
            assert worker.stop() == 0
    assert Attempt.objects.count() == (0 if outcome == "success" else 1)
    if outcome == "death":
        assert DeadJob.objects.get(pk=job.pk).lease_token == 1
    else:
        job.refresh_from_db()
        assert (job.status, job.lease_token) == (expected, 1)
