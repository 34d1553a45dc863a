"""The life of a job, case after case, with real worker processes: the specification.

Each name is a promise, and its test asserts all of it. They hold on PostgreSQL and on
SQLite, with every supported Python and Django, in the order of a job's life.
"""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import transaction
from django.utils import timezone

from django_jobqueue import DeadJob, Job
from django_jobqueue.exceptions import JobDead
from django_jobqueue.models import Attempt, WorkerHeartbeat
from tests.processes import WorkerProcess, run_burst
from tests.testapp import dangerous, jobs
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


def test_async_handlers_and_class_handlers_run_too(worker_env: Env) -> None:
    coroutine = jobs.add_async.enqueue(x=1)
    email = jobs.EmailHandler.enqueue(to="ada@example.com")
    async_email = jobs.AsyncEmailHandler.enqueue(to="ada@example.com")
    orm = jobs.touch_the_orm_async.enqueue(name="async")

    run_burst(worker_env)

    assert coroutine.wait(1).result == 2
    assert email.wait(1).result == "1 to ada@example.com"
    assert async_email.wait(1).result == "True ada@example.com"
    assert orm.wait(1).result == 1


def test_a_job_starts_after_the_commit_and_not_before(worker_env: Env) -> None:
    with WorkerProcess(worker_env, **FAST) as worker:
        worker.wait_until_started()
        with transaction.atomic():
            job = jobs.add.enqueue(x=1)
            before_commit = timezone.now()
        job = job.wait(timeout=20)
        assert job.status == "succeeded"
        assert job.claimed_at > before_commit


def test_a_job_of_a_rolled_back_transaction_does_not_exist(worker_env: Env) -> None:
    with transaction.atomic():
        jobs.add.enqueue(x=1)
        transaction.set_rollback(True)

    run_burst(worker_env)

    assert not Job.objects.exists()


def test_a_scheduled_job_runs_when_it_is_due(worker_env: Env) -> None:
    with WorkerProcess(worker_env, **FAST) as worker:
        worker.wait_until_started()
        job = jobs.add.using(delay=0.5).enqueue(x=1)
        assert job.status == "scheduled"
        job = job.wait(timeout=20)
        assert job.claimed_at - job.created_at >= timedelta(seconds=0.5)


def test_a_unique_key_allows_one_live_job(worker_env: Env) -> None:
    first = jobs.add.using(unique_key="only").enqueue(x=1)
    second = jobs.add.using(unique_key="only").enqueue(x=2)
    assert (second.pk, second.was_created) == (first.pk, False)

    run_burst(worker_env)

    third = jobs.add.using(unique_key="only").enqueue(x=3)
    assert third.was_created
    assert first.wait(1).result == 2


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


def test_a_failing_job_is_retried_until_it_succeeds(worker_env: Env) -> None:
    job = jobs.fail_until.enqueue(attempt=3)

    log = run_burst(worker_env)

    job = job.wait(timeout=1)
    assert (job.result, job.attempts) == (3, 3)
    assert read_attempts(job) == [(1, "failed"), (2, "failed"), (3, "succeeded")]
    assert log.count("job retries") == 2


def test_a_job_that_keeps_failing_is_dead_and_can_be_requeued(worker_env: Env) -> None:
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


def test_a_permanent_error_is_dead_at_once(worker_env: Env) -> None:
    unwanted = jobs.fail_for_good.enqueue()
    discarded = jobs.discard_itself.enqueue()

    run_burst(worker_env)

    for job in (unwanted, discarded):
        dead = DeadJob.objects.get(pk=job.pk)
        assert (dead.reason, dead.attempts) == ("discarded", 1)
    assert DeadJob.objects.get(pk=discarded.pk).error == "Discard: not wanted"


def test_a_handler_can_snooze_limit_and_cancel_its_job(worker_env: Env) -> None:
    snoozed = jobs.snooze_once.enqueue()
    limited = jobs.rate_limit_once.enqueue()
    cancelled = jobs.cancel_itself.enqueue()

    run_burst(worker_env)

    # The attempt that was given back is not counted.
    assert snoozed.wait(1).result == 1
    assert read_attempts(snoozed) == [(1, "snoozed"), (1, "succeeded")]
    assert limited.wait(1).result == 1
    assert read_attempts(limited) == [(1, "deferred"), (1, "succeeded")]
    cancelled.refresh_from_db()
    assert (cancelled.status, cancelled.error) == ("cancelled", "not needed any more")


def test_a_misbehaving_handler_ends_only_its_own_attempt(
    worker_env: Env,
) -> None:
    exits = jobs.exit_python.using(max_attempts=1).enqueue()
    strange = jobs.return_unserializable.using(max_attempts=1).enqueue()
    open_transaction = jobs.leave_a_transaction_open.enqueue()
    good = jobs.leave_effect.enqueue(name="good")

    run_burst(worker_env, "--concurrency", "1")

    assert DeadJob.objects.get(pk=exits.pk).error == "SystemExit: 3"
    assert "result is of type object" in DeadJob.objects.get(pk=strange.pk).error
    assert open_transaction.wait(1).status == "succeeded"
    assert good.wait(1).status == "succeeded"
    assert list(Effect.objects.values_list("name", flat=True)) == ["good"]


def test_a_row_with_invalid_values_ends_as_a_dead_job(
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


def test_an_atomic_job_runs_again_at_once_when_transactions_collide(
    worker_env: Env, tmp_path: Path
) -> None:
    few = jobs.meet_conflicts.enqueue(ledger=str(tmp_path / "few"), conflicts=5)
    # One more is a database error: the attempt is given back and starts again later.
    many = jobs.meet_conflicts.enqueue(ledger=str(tmp_path / "many"), conflicts=6)

    with WorkerProcess(worker_env, **FAST):
        few, many = few.wait(timeout=20), many.wait(timeout=30)

    assert (few.result, few.attempts, few.given_back) == (6, 1, 0)
    assert (many.result, many.attempts, many.given_back) == (7, 1, 1)
    for job in (few, many):
        assert Effect.objects.filter(job_id=job.pk).count() == 1


def test_a_job_on_two_databases_is_rolled_back_on_both(worker_env: Env) -> None:
    good = jobs.leave_effects_on_both.enqueue(name="good")
    jobs.leave_effects_on_both.enqueue(name="bad", fail=True)

    run_burst(worker_env)

    assert good.wait(1).status == "succeeded"
    for alias in ("default", "business"):
        effects = Effect.objects.using(alias).values_list("name", flat=True)
        assert list(effects) == ["good"], alias


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_soon(
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
    with WorkerProcess(worker_env, **FAST):
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        for job in running:
            assert job.cancel() == "requested"
        for job in running:
            assert job.wait(timeout=20).status == "cancelled"


def test_an_expired_job_is_cancelled_instead_of_started(worker_env: Env) -> None:
    past = timezone.now() - timedelta(seconds=1)
    job = jobs.leave_effect.using(expires_at=past).enqueue(name="late")

    run_burst(worker_env)

    job.refresh_from_db()
    assert (job.status, job.error) == ("cancelled", "expired")
    assert not Effect.objects.exists()


def test_a_job_without_a_handler_waits_for_the_deploy(worker_env: Env) -> None:
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


def test_a_job_whose_handler_is_never_deployed_is_dead(worker_env: Env) -> None:
    job = jobs.add.enqueue(x=1)
    Job.objects.filter(pk=job.pk).update(job_type="testapp.removed")
    with WorkerProcess(worker_env, **FAST, JOBQUEUE_UNKNOWN_HANDLER_GRACE="1"):
        wait_until(lambda: DeadJob.objects.filter(pk=job.pk).exists())
    dead = DeadJob.objects.get(pk=job.pk)
    assert (dead.reason, dead.attempts) == ("unknown_handler", 1)
    assert "No handler is registered for the job type 'testapp.removed'" in dead.error


def test_a_database_error_does_not_cost_the_job_an_attempt(worker_env: Env) -> None:
    job = jobs.lose_the_connection.using(max_attempts=1).enqueue()

    with WorkerProcess(worker_env, **FAST) as worker:
        job = job.wait(timeout=20)
        worker.wait_until_logged("WARNING job given back")
    assert (job.status, job.attempts, job.given_back) == ("succeeded", 1, 1)


def test_a_job_that_kills_its_process_is_dead_after_three_crashes(
    worker_env: Env,
) -> None:
    poison = dangerous.exit_at_once.enqueue(code=9)
    good = jobs.add.enqueue(x=1)

    with WorkerProcess(worker_env, **FAST):
        wait_until(lambda: DeadJob.objects.filter(pk=poison.pk).exists())
        # Still there, and serving others.
        after = jobs.add.enqueue(x=2).wait(timeout=20)

    dead = DeadJob.objects.get(pk=poison.pk)
    assert (dead.reason, dead.crashes) == ("crashed", 3)
    assert "exited with code 9" in dead.error
    assert read_attempts(poison) == [(1, "crashed"), (2, "crashed"), (3, "crashed")]
    assert (good.wait(1).result, after.result) == (2, 3)


def test_a_job_that_starts_once_is_dead_when_its_process_crashes(
    worker_env: Env,
) -> None:
    job = dangerous.exit_at_once.using(max_attempts=1).enqueue(code=0)

    with WorkerProcess(worker_env, **FAST):
        wait_until(lambda: DeadJob.objects.filter(pk=job.pk).exists())

    assert DeadJob.objects.get(pk=job.pk).reason == "crashed"
    assert read_attempts(job) == [(1, "crashed")]


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
        worker.wait_until_logged("job rescued")
        assert worker.stop() == 0
    assert (job.status, job.lost, job.attempts) == ("succeeded", 1, 1)
    assert read_attempts(job) == [(1, "lost"), (1, "succeeded")]


def test_at_the_first_signal_running_jobs_may_end(
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


def test_a_job_that_outlives_the_shutdown_timeout_is_released(
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


def test_an_ended_job_is_pruned_after_its_retention_with_its_attempts(
    worker_env: Env,
) -> None:
    ended = jobs.fail_until.enqueue(attempt=2)
    dead = jobs.fail.using(max_attempts=1).enqueue()

    run_burst(worker_env, JOBQUEUE_RETENTION=json.dumps({"succeeded": 0.1}))
    assert read_attempts(ended) == [(1, "failed"), (2, "succeeded")]
    waiting = jobs.add.using(delay=3600).enqueue(x=1)

    def is_pruned() -> bool:
        call_command("jobqueue", "prune", verbosity=0)
        return not Job.objects.filter(pk=ended.pk).exists()

    wait_until(is_pruned)
    assert read_attempts(ended) == []
    # Only ended jobs are pruned: a dead one is kept with its attempts.
    assert Job.objects.get().pk == waiting.pk
    assert DeadJob.objects.get().pk == dead.pk
    assert read_attempts(dead) == [(1, "failed")]
