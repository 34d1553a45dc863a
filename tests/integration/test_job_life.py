"""The life of a job, case after case, with real worker processes: the specification.

Each test is a sentence about what a user sees. The same sentences hold on PostgreSQL
and on SQLite.
"""

from __future__ import annotations

import json
import re
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import transaction
from django.utils import timezone

from django_jobqueue import DeadJob, Job, JobSpec
from django_jobqueue.exceptions import JobDead
from django_jobqueue.models import Attempt, Queue, WorkerHeartbeat
from tests.processes import WorkerProcess, run_burst
from tests.testapp import jobs
from tests.testapp.models import Effect
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "business"]),
    pytest.mark.timeout(180),
]
FAST = {
    "JOBQUEUE_HEARTBEAT_INTERVAL": "0.3",
    "JOBQUEUE_HEARTBEAT_TTL": "1",
    "JOB_POLL_INTERVAL": "100",
}
Env = dict[str, str]


def read_attempts(job: Job) -> list[tuple[int, str]]:
    rows = Attempt.objects.filter(job_id=job.pk).order_by("lease_token")
    return [(row.number, row.outcome) for row in rows]


def test_a_job_is_enqueued_and_runs_and_its_result_is_kept(worker_env: Env) -> None:
    job = jobs.add.enqueue(2, y=3)
    assert (job.status, job.was_created) == ("pending", True)

    run_burst(worker_env)

    job = job.wait(timeout=1)
    assert (job.status, job.result, job.attempts) == ("succeeded", 5, 1)
    assert job.created_at <= job.claimed_at <= job.started_at <= job.finished_at
    assert read_attempts(job) == []


def test_an_async_handler_and_class_handlers_run_too(worker_env: Env) -> None:
    coroutine = jobs.add_async.enqueue(x=1)
    email = jobs.EmailHandler.enqueue(to="ada@example.com")
    async_email = jobs.AsyncEmailHandler.enqueue(to="ada@example.com")
    orm = jobs.touch_the_orm_async.enqueue(name="async")

    run_burst(worker_env)

    assert coroutine.wait(1).result == 2
    assert email.wait(1).result == "1 to ada@example.com"
    assert async_email.wait(1).result == "True ada@example.com"
    assert orm.wait(1).result == 1


@pytest.mark.slow
def test_a_job_appears_with_the_commit_and_not_before(worker_env: Env) -> None:
    with WorkerProcess(worker_env, **FAST) as worker:
        worker.wait_until_started()
        with transaction.atomic():
            Effect.objects.create(name="before")
            job = jobs.add.enqueue(x=1)
        assert job.wait(timeout=20).status == "succeeded"
        assert worker.stop() == 0


@pytest.mark.slow
def test_a_job_of_a_rolled_back_transaction_never_was(worker_env: Env) -> None:
    with transaction.atomic():
        jobs.add.enqueue(x=1)
        transaction.set_rollback(True)

    run_burst(worker_env)

    assert not Job.objects.exists()


@pytest.mark.slow
def test_a_scheduled_job_runs_when_it_is_due(worker_env: Env) -> None:
    with WorkerProcess(worker_env, **FAST) as worker:
        worker.wait_until_started()
        job = jobs.add.using(delay=0.5).enqueue(x=1)
        assert job.status == "scheduled"
        job = job.wait(timeout=20)
        assert job.claimed_at - job.created_at >= timedelta(seconds=0.5)


@pytest.mark.slow
def test_a_failing_job_is_retried_until_it_succeeds(worker_env: Env) -> None:
    job = jobs.fail_until.enqueue(attempt=3)

    log = run_burst(worker_env)

    job = job.wait(timeout=1)
    assert (job.result, job.attempts) == (3, 3)
    assert read_attempts(job) == [(1, "failed"), (2, "failed"), (3, "succeeded")]
    assert log.count("job retries") == 2
    assert "attempt=2" in log
    assert "next_in=" in log


def test_a_job_that_keeps_failing_dies_and_can_be_requeued(worker_env: Env) -> None:
    job = jobs.fail.enqueue(message="no such card")

    log = run_burst(worker_env)

    dead = DeadJob.objects.get(pk=job.pk)
    assert (dead.reason, dead.error, dead.attempts) == (
        "exception",
        "ValueError: no such card",
        3,
    )
    assert read_attempts(job) == [(1, "failed"), (2, "failed"), (3, "failed")]
    assert "raise ValueError(message)\nValueError: no such card" in (
        Attempt.objects.filter(job_id=job.pk).first().traceback
    )
    assert "job dead" in log
    with pytest.raises(JobDead, match="no such card"):
        job.wait(timeout=1)

    again = dead.requeue()
    assert again is not None
    assert (again.pk, again.attempts) == (job.pk, 0)
    run_burst(worker_env)
    assert DeadJob.objects.get(pk=job.pk).attempts == 3
    assert len(read_attempts(job)) == 6


@pytest.mark.slow
def test_a_permanent_error_is_dead_at_once(worker_env: Env) -> None:
    unwanted = jobs.fail_for_good.enqueue()
    discarded = jobs.give_up.enqueue()

    run_burst(worker_env)

    for job in (unwanted, discarded):
        dead = DeadJob.objects.get(pk=job.pk)
        assert (dead.reason, dead.attempts) == ("discarded", 1)
    assert DeadJob.objects.get(pk=discarded.pk).error == "Discard: nobody wants this"


@pytest.mark.slow
def test_a_handler_steers_its_job(worker_env: Env) -> None:
    snoozed = jobs.snooze_once.enqueue()
    limited = jobs.be_limited_once.enqueue()
    cancelled = jobs.call_off.enqueue()

    run_burst(worker_env)

    # The attempt that was given back does not count.
    assert snoozed.wait(1).result == 1
    assert read_attempts(snoozed) == [(1, "snoozed"), (1, "succeeded")]
    assert limited.wait(1).result == 1
    assert read_attempts(limited) == [(1, "deferred"), (1, "succeeded")]
    cancelled.refresh_from_db()
    assert (cancelled.status, cancelled.error) == ("cancelled", "not needed any more")


@pytest.mark.slow
def test_a_handler_may_do_what_it_likes_and_only_its_attempt_ends(
    worker_env: Env,
) -> None:
    exits = jobs.exit_python.using(max_attempts=1).enqueue()
    strange = jobs.return_something_strange.using(max_attempts=1).enqueue()
    open_transaction = jobs.leave_a_transaction_open.enqueue()
    good = jobs.leave_effect.enqueue(name="good")

    run_burst(worker_env, "--concurrency", "1")

    assert DeadJob.objects.get(pk=exits.pk).error == "SystemExit: 3"
    assert "result is of type object" in DeadJob.objects.get(pk=strange.pk).error
    assert open_transaction.wait(1).status == "succeeded"
    assert good.wait(1).status == "succeeded"
    assert list(Effect.objects.values_list("name", flat=True)) == ["good"]


@pytest.mark.slow
def test_a_row_spoilt_by_hand_ends_as_a_dead_job_and_costs_no_slot(
    worker_env: Env,
) -> None:
    spoilt = [
        (jobs.fail.enqueue(), {"backoff": {"sideways": 1}}),
        (jobs.add.enqueue(x=1), {"payload": ["not", "a", "dict"]}),
        (jobs.add_async.enqueue(x=1), {"args": 5}),
    ]
    for job, columns in spoilt:
        Job.objects.filter(pk=job.pk).update(**columns, max_attempts=1)
    good = jobs.add.enqueue(x=1)

    run_burst(worker_env, "--concurrency", "1")

    assert good.wait(1).result == 2
    for job, _ in spoilt:
        assert DeadJob.objects.get(pk=job.pk).reason == "exception"


def test_an_attempt_that_takes_too_long_is_interrupted(worker_env: Env) -> None:
    thread = jobs.loop_for_ever.enqueue()
    coroutine = jobs.await_for_ever.enqueue()
    query = jobs.query_for_ever.enqueue()

    run_burst(worker_env)

    for job in (thread, coroutine, query):
        dead = DeadJob.objects.get(pk=job.pk)
        assert dead.reason == "timeout"
        assert dead.error.startswith("JobTimeout")
        assert read_attempts(job) == [(1, "timeout")]


def test_an_atomic_job_has_its_effects_and_its_end_in_one_commit(
    worker_env: Env,
) -> None:
    good = jobs.leave_effect_atomically.enqueue(name="good")
    bad = jobs.leave_effect_atomically.using(max_attempts=1).enqueue(
        name="bad", fail=True
    )

    run_burst(worker_env)

    assert good.wait(1).status == "succeeded"
    assert DeadJob.objects.get(pk=bad.pk).error == "ValueError: after the effect"
    assert list(Effect.objects.values_list("name", flat=True)) == ["good"]
    assert Job.objects.filter(queue="follow-up").count() == 1


@pytest.mark.slow
def test_an_atomic_job_runs_again_at_once_when_transactions_collide(
    worker_env: Env, tmp_path: Path
) -> None:
    few = jobs.meet_conflicts.enqueue(ledger=str(tmp_path / "few"), conflicts=5)
    run_burst(worker_env)

    few = few.wait(1)
    assert (few.result, few.attempts, few.given_back) == (6, 1, 0)
    assert Effect.objects.filter(job_id=few.pk).count() == 1

    # Then it is trouble of the database, and the attempt is given back.
    many = jobs.meet_conflicts.enqueue(ledger=str(tmp_path / "many"), conflicts=6)
    run_burst(worker_env)
    many = many.wait(20) if many.cancel() == "ended" else many
    assert many.given_back == 1


def test_a_job_on_two_databases_is_rolled_back_on_both(worker_env: Env) -> None:
    good = jobs.leave_effects_on_both.enqueue(name="good")
    jobs.leave_effects_on_both.enqueue(name="bad", fail=True)

    run_burst(worker_env)

    assert good.wait(1).status == "succeeded"
    for alias in ("default", "business"):
        effects = Effect.objects.using(alias).values_list("name", flat=True)
        assert list(effects) == ["good"], alias


@pytest.mark.slow
def test_a_unique_key_allows_one_live_job(worker_env: Env) -> None:
    first = jobs.add.using(unique_key="only").enqueue(x=1)
    second = jobs.add.using(unique_key="only").enqueue(x=2)
    assert (second.pk, second.was_created) == (first.pk, False)

    run_burst(worker_env)

    third = jobs.add.using(unique_key="only").enqueue(x=3)
    assert third.was_created
    assert first.wait(1).result == 2


def test_a_waiting_job_can_be_cancelled_and_a_running_one_asked(
    worker_env: Env, tmp_path: Path
) -> None:
    waiting = jobs.add.using(delay=3600).enqueue(x=1)
    assert waiting.cancel() == "cancelled"
    running = [
        handler.enqueue(touch=str(tmp_path / name), until=str(tmp_path / "never"))
        for name, handler in (
            ("thread", jobs.ignore_everything),
            ("coroutine", jobs.await_file),
        )
    ]
    with WorkerProcess(worker_env, **FAST) as worker:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        for job in running:
            assert job.cancel() == "requested"
        for job in running:
            assert job.wait(timeout=20).status == "cancelled"
        assert worker.stop() == 0


@pytest.mark.slow
def test_an_expired_job_is_cancelled_instead_of_started(worker_env: Env) -> None:
    past = timezone.now() - timedelta(seconds=1)
    job = jobs.leave_effect.using(expires_at=past).enqueue(name="late")

    run_burst(worker_env)

    job.refresh_from_db()
    assert (job.status, job.error) == ("cancelled", "expired")
    assert not Effect.objects.exists()


@pytest.mark.slow
def test_progress_is_seen_while_the_job_runs(worker_env: Env, tmp_path: Path) -> None:
    half, go_on = tmp_path / "half", tmp_path / "go on"
    job = jobs.report_progress.enqueue(touch=str(half), until=str(go_on))
    with WorkerProcess(worker_env, **FAST):
        wait_until(half.exists)
        wait_until(lambda: Job.objects.get(pk=job.pk).progress)
        progress = Job.objects.get(pk=job.pk).progress
        go_on.touch()
        job = job.wait(timeout=20)
    assert progress == {"fraction": 0.5, "note": "half way"}
    assert job.result == f"{job.pk}:mail"


@pytest.mark.slow
def test_a_job_of_an_unknown_handler_waits_for_the_deploy(worker_env: Env) -> None:
    job = jobs.add.enqueue(x=1)
    Job.objects.filter(pk=job.pk).update(job_type="testapp.not_deployed_yet")
    with WorkerProcess(worker_env, **FAST):
        wait_until(lambda: Job.objects.get(pk=job.pk).unknown_since)
        waiting = Job.objects.get(pk=job.pk)
        assert (waiting.attempts, waiting.status) == (0, "scheduled")
        # The deploy is over.
        Job.objects.filter(pk=job.pk).update(
            job_type="testapp.add", run_at=timezone.now()
        )
        job = job.wait(timeout=20)
    assert (job.attempts, job.unknown_since) == (1, None)


@pytest.mark.slow
def test_a_job_whose_handler_never_comes_dies_of_that(worker_env: Env) -> None:
    job = jobs.add.enqueue(x=1)
    Job.objects.filter(pk=job.pk).update(job_type="testapp.removed")
    with WorkerProcess(worker_env, **FAST, JOBQUEUE_UNKNOWN_HANDLER_GRACE="1"):
        wait_until(lambda: DeadJob.objects.filter(pk=job.pk).exists())
    dead = DeadJob.objects.get(pk=job.pk)
    assert (dead.reason, dead.attempts) == ("unknown_handler", 1)
    assert "No handler is registered for the job type 'testapp.removed'" in dead.error


@pytest.mark.slow
def test_database_trouble_is_not_the_fault_of_the_job(worker_env: Env) -> None:
    job = jobs.lose_the_connection.using(max_attempts=1).enqueue()

    with WorkerProcess(worker_env, **FAST) as worker:
        job = job.wait(timeout=20)
        assert worker.has_logged("WARNING job given back")
    assert (job.status, job.attempts, job.given_back) == ("succeeded", 1, 1)


def test_the_jobs_of_a_killed_worker_are_rescued(
    worker_env: Env, tmp_path: Path
) -> None:
    started, go_on = tmp_path / "started", tmp_path / "go on"
    job = jobs.wait_for_file.enqueue(touch=str(started), until=str(go_on))
    with WorkerProcess(worker_env, **FAST) as doomed:
        wait_until(started.exists)
        doomed.kill()
    job.refresh_from_db()
    assert job.status == "running"
    go_on.touch()
    with WorkerProcess(worker_env, **FAST) as worker:
        job = job.wait(timeout=30)
        assert worker.has_logged("job rescued")
        assert worker.stop() == 0
    assert (job.status, job.lost, job.attempts) == ("succeeded", 1, 1)
    assert read_attempts(job) == [(1, "lost"), (1, "succeeded")]


@pytest.mark.slow
def test_the_first_signal_lets_jobs_end_and_tells_them(
    worker_env: Env, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    job = jobs.wait_for_file.enqueue(touch=str(started), until=str(tmp_path / "never"))
    with WorkerProcess(worker_env) as worker:
        wait_until(started.exists)
        # The handler sees context.stopping and ends by itself.
        assert worker.stop() == 0
    job.refresh_from_db()
    assert (job.status, job.result) == ("succeeded", False)
    assert not WorkerHeartbeat.objects.exists()


@pytest.mark.slow
def test_a_job_cut_off_by_the_shutdown_goes_back_with_its_attempt(
    worker_env: Env, tmp_path: Path
) -> None:
    never = str(tmp_path / "never")
    cut_off = [
        jobs.ignore_everything.enqueue(touch=str(tmp_path / "1"), until=never),
        jobs.await_file.enqueue(touch=str(tmp_path / "2"), until=never),
    ]
    with WorkerProcess(worker_env, "--shutdown-timeout", "0.3") as worker:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        assert worker.stop(timeout=10) == 0
    for job in cut_off:
        job.refresh_from_db()
        assert (job.status, job.attempts, job.error) == ("pending", 0, "")
        assert read_attempts(job) == [(1, "released")]
    assert not WorkerHeartbeat.objects.exists()


@pytest.mark.slow
def test_the_second_signal_ends_the_worker_within_two_seconds(
    worker_env: Env, tmp_path: Path
) -> None:
    job = jobs.ignore_everything.enqueue(
        touch=str(tmp_path / "started"), until=str(tmp_path / "never")
    )
    with WorkerProcess(worker_env) as worker:
        wait_until((tmp_path / "started").exists)
        worker.signal(signal.SIGINT)
        wait_until(lambda: worker.has_logged("worker drains"))
        worker.signal(signal.SIGINT)
        assert worker.wait(timeout=5) == 0
    job.refresh_from_db()
    assert (job.status, job.attempts) == ("pending", 0)


@pytest.mark.slow
def test_once_ends_after_one_job_and_max_jobs_after_that_many(worker_env: Env) -> None:
    for _ in range(10):
        jobs.nothing.enqueue()

    with WorkerProcess(worker_env, "--once") as worker:
        assert worker.wait() == 0
    assert Job.objects.counts()["succeeded"] == 1

    with WorkerProcess(worker_env, "--in-process", "--max-jobs", "4") as worker:
        assert worker.wait() == 0
    assert Job.objects.counts() | {"succeeded": 5, "pending": 5} == Job.objects.counts()


@pytest.mark.slow
def test_a_worker_serves_the_queues_it_is_told_to(worker_env: Env) -> None:
    for queue in ("high", "low", "other"):
        jobs.nothing.using(queue=queue).enqueue()

    run_burst(worker_env, "--queues", "high:4,low")
    assert list(Job.objects.waiting().values_list("queue", flat=True)) == ["other"]

    jobs.nothing.using(queue="low").enqueue()
    run_burst(worker_env, "--exclude-queues", "low")
    assert list(Job.objects.waiting().values_list("queue", flat=True)) == ["low"]
    assert {"high", "other"} & set(Queue.objects.values_list("name", flat=True))


def test_every_log_record_names_the_job_it_belongs_to(worker_env: Env) -> None:
    job = jobs.speak.enqueue(word="hello")

    log = run_burst(worker_env, "--log-format", "json")

    records = [json.loads(line) for line in log.splitlines()]
    own = [r for r in records if "word is hello" in r["message"]]
    done = [r for r in records if r["message"] == "job done"]
    assert len(own) == 2
    assert len(done) == 1
    for record in own + done:
        assert record["job_id"] == str(job.pk)
        assert (record["job_type"], record["attempt"]) == ("testapp.speak", 1)
        assert record["worker_id"]
    assert all("worker_id" in record for record in records)


@pytest.mark.slow
def test_a_loud_worker_writes_summaries_unless_told_otherwise(worker_env: Env) -> None:
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(600))
    quiet = run_burst(worker_env)
    Job.objects.enqueue_many(JobSpec("testapp.nothing") for _ in range(600))
    loud = run_burst(worker_env, "--log-jobs", "all")

    # On a slow machine no second may be loud; but every job is told of, once.
    summed = sum(map(int, re.findall(r"jobs done .*count=(\d+)", quiet)))
    assert quiet.count("job done") + summed == 600
    assert loud.count("job done") == 600


@pytest.mark.slow
def test_a_worker_with_nothing_to_do_leaves_no_trace(worker_env: Env) -> None:
    with WorkerProcess(worker_env, "--name", "night") as worker:
        worker.wait_until_started()
        row = WorkerHeartbeat.objects.get()
        assert (row.name, row.concurrency, row.state) == ("night", 10, "running")
        assert worker.stop() == 0
    assert not WorkerHeartbeat.objects.exists()


@pytest.mark.slow
def test_a_worker_tells_which_queues_it_serves(worker_env: Env) -> None:
    with WorkerProcess(worker_env, "--exclude-queues", "slow") as worker:
        worker.wait_until_started()
        row = WorkerHeartbeat.objects.get()
        assert (row.serves("mail"), row.serves("slow")) == (True, False)
        assert row.label_queues() == ["-slow"]
    WorkerHeartbeat.objects.all().delete()
    with WorkerProcess(worker_env, "--queues", "high:4,low") as worker:
        worker.wait_until_started()
        row = WorkerHeartbeat.objects.get()
        assert (row.serves("mail"), row.serves("low")) == (False, True)
        assert row.label_queues() == ["high:4", "low"]
