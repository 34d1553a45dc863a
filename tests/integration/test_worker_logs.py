"""The log of a real worker: records name their job, a busy worker summarises."""

from __future__ import annotations

import json
import re

import pytest

from django_jobqueue import Job, JobSpec
from tests.processes import run_burst
from tests.testapp import jobs

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.timeout(180),
]
Env = dict[str, str]


def test_every_log_record_names_the_job_it_belongs_to(worker_env: Env) -> None:
    job = jobs.log_text.enqueue(text="hello")

    log = run_burst(worker_env, "--log-format", "json")

    records = [json.loads(line) for line in log.splitlines()]
    own = [r for r in records if "logger: hello" in r["message"]]
    done = [r for r in records if r["message"] == "job done"]
    assert len(own) == 2
    assert len(done) == 1
    for record in own + done:
        assert record["job_id"] == str(job.pk)
        assert (record["job_type"], record["attempt"]) == ("testapp.log_text", 1)
        assert record["worker_id"]
    # The supervisor runs no job and has no worker id.
    *of_worker, last = records
    assert (last["message"], last["code"]) == ("supervisor ends", 0)
    assert all("worker_id" in record for record in of_worker)


def test_a_busy_worker_writes_summaries_unless_log_jobs_is_all(worker_env: Env) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(600))
    quiet = run_burst(worker_env)
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(600))
    loud = run_burst(worker_env, "--log-jobs", "all")

    # On a slow machine no second may be busy, but every job is logged once.
    summed = sum(map(int, re.findall(r"jobs done .*count=(\d+)", quiet)))
    assert quiet.count("job done") + summed == 600
    assert loud.count("job done") == 600
