"""run_jobs(): the transitions and attempts of a worker, in the thread and the
transaction of a test."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone, translation

from django_jobqueue import DeadJob, Job, JobSpec, job, signals
from django_jobqueue.exceptions import UnknownJobType
from django_jobqueue.models import Attempt
from django_jobqueue.testing import RanJobs, RunawayJobs, arun_jobs, run, run_jobs
from tests.factories import make_job
from tests.testapp import jobs, rehearsed
from tests.testapp.models import Effect

HOUR = timedelta(hours=1)

pytestmark = pytest.mark.usefixtures("database")


def test_run_jobs_without_jobs_returns_no_attempts() -> None:
    ran = run_jobs()

    assert ran == RanJobs()
    assert not ran


def test_a_job_runs_in_the_thread_of_the_test_and_its_end_is_written() -> None:
    job = jobs.return_thread_name.enqueue()

    [ran] = run_jobs()

    job.refresh_from_db()
    assert (job.status, job.attempts) == ("succeeded", 1)
    assert job.result == ran.result == threading.current_thread().name
    assert (ran.job_id, ran.job_type) == (job.pk, "testapp.return_thread_name")
    assert (ran.outcome, ran.attempt, ran.queue) == ("succeeded", 1, "default")


def test_sync_async_and_class_handlers_run() -> None:
    jobs.add.enqueue(x=1)
    jobs.add_async.enqueue(x=2)
    jobs.leave_effect_async.enqueue(name="async")
    jobs.EmailHandler.enqueue(to="me")
    jobs.AsyncEmailHandler.enqueue(to="you")

    ran = run_jobs()

    assert ran.results == [2, 3, "async", "1 to me", "True you"]
    assert ran.outcomes == ["succeeded"] * 5
    assert Effect.objects.get().name == "async"


def test_more_urgent_jobs_run_first_whatever_their_queue() -> None:
    jobs.add.using(queue="slow").enqueue(x=1)
    jobs.add.using(queue="fast", priority=10).enqueue(x=2)
    jobs.add.using(queue="slow", priority=20).enqueue(x=3)

    assert run_jobs().results == [4, 3, 2]


def test_only_jobs_of_the_given_queues_run() -> None:
    jobs.add.using(queue="a").enqueue(x=1)
    other = jobs.add.using(queue="b").enqueue(x=2)

    assert run_jobs(queues=["a", "c"]).results == [2]
    other.refresh_from_db()
    assert other.status == "pending"


def test_a_text_in_place_of_queues_is_refused() -> None:
    with pytest.raises(TypeError) as caught:
        run_jobs(queues="mail")
    assert str(caught.value) == (
        "queues takes a list of names, not the text 'mail'. "
        "Write run_jobs(queues=['mail'])."
    )


def test_jobs_enqueued_by_jobs_run_too() -> None:
    rehearsed.chain.enqueue(length=3)

    assert run_jobs().results == [3, 2, 1]


def test_without_recursive_each_waiting_job_gets_one_attempt() -> None:
    rehearsed.chain.enqueue(length=3)
    jobs.fail.enqueue()

    ran = run_jobs(recursive=False, raise_errors=False)

    assert ran.job_types == ["testapp.chain", "testapp.fail"]
    assert Job.objects.filter(status="pending").count() == 2


def test_limit_is_the_maximum_number_of_attempts() -> None:
    rehearsed.enqueue_itself.enqueue()

    assert len(run_jobs(limit=3)) == 3
    assert Job.objects.filter(status="pending").count() == 1


def test_a_job_that_enqueues_itself_forever_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "MAX_ATTEMPTS_PER_RUN", 5)
    rehearsed.enqueue_itself.enqueue()

    with pytest.raises(RunawayJobs) as caught:
        run_jobs()
    assert str(caught.value) == (
        "run_jobs() has run 5 attempts, and more jobs are due. Most of them: "
        "testapp.enqueue_itself (5). Does a job enqueue itself? Pass limit=… to stop "
        "earlier, or recursive=False."
    )


def test_scheduled_jobs_run_only_with_scheduled() -> None:
    job = jobs.add.using(delay=HOUR).enqueue(x=1)

    assert run_jobs() == RanJobs()
    assert run_jobs(scheduled=True).results == [2]
    job.refresh_from_db()
    assert job.finished_at is not None
    assert job.finished_at >= job.run_at
    # The clock was restored.
    assert jobs.nothing.enqueue().created_at < timezone.now() + HOUR / 2


def test_scheduled_jobs_run_in_the_order_of_their_times() -> None:
    jobs.add.using(delay=3 * HOUR).enqueue(x=3)
    jobs.add.using(delay=HOUR).enqueue(x=1)
    jobs.add.using(delay=2 * HOUR, priority=100).enqueue(x=2)
    jobs.add.enqueue(x=0)

    assert run_jobs(scheduled=True).results == [1, 2, 3, 4]


def test_an_exception_is_recorded_and_then_raised() -> None:
    job = jobs.fail.using(backoff=60).enqueue(message="so it is")
    left = jobs.add.enqueue(x=1)

    with pytest.raises(ValueError, match="so it is") as caught:
        run_jobs()

    assert caught.value.__notes__ == [
        f"Raised by attempt 1 of testapp.fail {job.pk}, and recorded. "
        f"To continue, pass run_jobs(raise_errors=False)."
    ]
    job.refresh_from_db()
    left.refresh_from_db()
    assert (job.status, job.error) == ("scheduled", "ValueError: so it is")
    assert left.status == "pending"


def test_without_raise_errors_an_error_is_only_recorded() -> None:
    jobs.fail.using(backoff=60).enqueue()
    jobs.add.enqueue(x=1)

    failed, added = run_jobs(raise_errors=False)

    assert (failed.outcome, failed.error) == ("failed", "ValueError: it failed")
    assert isinstance(failed.exception, ValueError)
    assert (failed.delay, failed.is_dead) == (timedelta(seconds=60), False)
    assert added.result == 2


def test_a_retry_without_delay_runs_at_once_and_one_with_delay_waits() -> None:
    jobs.fail_until.enqueue(attempt=3)
    waits = jobs.fail_until.using(backoff=60).enqueue(attempt=2)

    ran = run_jobs(raise_errors=False)

    assert [each.attempt for each in ran if each.job_id != waits.pk] == [1, 2, 3]
    assert ran.results == [3]
    waits.refresh_from_db()
    assert waits.status == "scheduled"


def test_with_scheduled_jobs_retries_run_until_success_or_death() -> None:
    dying = jobs.fail.using(backoff=[60, 600], max_attempts=3).enqueue()
    saved = jobs.fail_until.using(backoff=60).enqueue(attempt=2)

    ran = run_jobs(scheduled=True, raise_errors=False)

    assert [each.is_dead for each in ran if each.job_id == dying.pk] == [
        False,
        False,
        True,
    ]
    dead = DeadJob.objects.get(pk=dying.pk)
    assert (dead.reason, dead.attempts) == ("exception", 3)
    first, second, third = Attempt.objects.filter(job_id=dying.pk).order_by("id")
    assert second.finished_at - first.finished_at >= timedelta(seconds=60)
    assert third.finished_at - second.finished_at >= timedelta(seconds=600)
    saved.refresh_from_db()
    assert saved.status == "succeeded"


def test_snooze_cancel_and_discard_are_not_raised() -> None:
    jobs.cancel_itself.enqueue()
    jobs.discard_itself.enqueue()
    jobs.rate_limit_once.enqueue()
    rehearsed.snooze_twice.enqueue(hours=1)

    ran = run_jobs()

    assert ran.outcomes == [
        "cancelled",
        "discarded",
        "deferred",
        "snoozed",
        "succeeded",
    ]
    assert [each.error for each in ran[:2]] == [
        "not needed any more",
        "Discard: not wanted",
    ]
    assert DeadJob.objects.get().reason == "discarded"
    # The attempt was given back twice.
    assert run_jobs(scheduled=True).results == [1]


def test_a_permanent_error_is_raised_too() -> None:
    jobs.fail_for_good.enqueue()

    with pytest.raises(KeyError):
        run_jobs()
    assert DeadJob.objects.get().reason == "discarded"


def test_an_expired_job_is_cancelled() -> None:
    moment = timezone.now() - HOUR
    jobs.add.using(expires_at=moment).enqueue(x=1)

    [ran] = run_jobs()

    assert (ran.outcome, ran.error) == ("cancelled", "expired")


def test_an_unknown_job_type_is_raised() -> None:
    make_job(job_type="testapp.ad")

    with pytest.raises(UnknownJobType, match=r"Did you mean 'testapp\.add'"):
        run_jobs()
    assert run_jobs(raise_errors=False, scheduled=True, limit=1).outcomes == [
        "unknown_handler"
    ]


def test_sys_exit_in_a_handler_is_recorded_and_raised() -> None:
    jobs.exit_python.enqueue()
    with pytest.raises(SystemExit):
        run_jobs()
    jobs.exit_python.enqueue()
    assert run_jobs(raise_errors=False)[0].outcome == "failed"


@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.fail.Exception])
def test_keyboard_interrupt_and_pytest_outcomes_are_always_raised(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(name: str) -> str:
        raise error("stop")

    monkeypatch.setattr(rehearsed, "charge", interrupt)
    rehearsed.pay_once.enqueue(name="Ada")

    with pytest.raises(error):
        run_jobs(raise_errors=False)


def test_an_atomic_handler_commits_its_writes_with_its_end() -> None:
    jobs.leave_effect_atomically.enqueue(name="kept")

    ran = run_jobs()

    assert ran.job_types == ["testapp.leave_effect_atomically", "testapp.nothing"]
    assert ran.outcomes == ["succeeded", "succeeded"]
    assert Effect.objects.get().name == "kept"


def test_a_failing_atomic_handler_is_rolled_back_and_recorded() -> None:
    Effect.objects.create(name="before")
    job = jobs.leave_effect_atomically.enqueue(name="gone", fail=True)

    [ran] = run_jobs(raise_errors=False)

    assert (ran.outcome, ran.error) == ("failed", "ValueError: after the effect")
    assert Effect.objects.get().name == "before"
    job.refresh_from_db()
    assert job.status == "scheduled"
    assert not Job.objects.filter(queue="follow-up").exists()


def test_on_commit_hooks_of_a_handler_run_after_its_end() -> None:
    rehearsed.hook_after_commit.enqueue(name="hooked")
    rehearsed.hook_after_atomic.enqueue(name="atomic")

    run_jobs()

    assert set(Effect.objects.values_list("name", flat=True)) == {"hooked", "atomic"}
    assert rehearsed.charges == ["atomic"]


def test_on_commit_hooks_of_the_test_do_not_run() -> None:
    called: list[str] = []
    with transaction.atomic():
        transaction.on_commit(lambda: called.append("mine"))
        rehearsed.hook_after_commit.enqueue(name="of the job")
        run_jobs()
        assert called == []
        assert Effect.objects.get().name == "of the job"


def test_an_exception_of_an_on_commit_hook_is_raised() -> None:
    rehearsed.hook_after_commit.enqueue(name="x", fail=True)
    with pytest.raises(ValueError, match="in the hook"):
        run_jobs()

    rehearsed.hook_after_commit.using(backoff=60).enqueue(name="x", fail=True)
    rehearsed.hook_after_commit.enqueue(name="x", fail=True, robust=True)
    assert len(run_jobs(raise_errors=False)) == 2


def test_a_transaction_that_a_handler_leaves_open_is_rolled_back() -> None:
    jobs.leave_a_transaction_open.enqueue()
    jobs.leave_effect.enqueue(name="next")

    assert run_jobs().outcomes == ["succeeded", "succeeded"]
    assert Effect.objects.get().name == "next"


@pytest.mark.parametrize("name", ["tell_progress", "tell_progress_async"])
def test_progress_is_written(name: str) -> None:
    job = getattr(rehearsed, name).enqueue()

    run_jobs()

    job.refresh_from_db()
    assert job.progress == {"fraction": 0.5, "note": "half way"}


def test_signals_are_sent_as_by_a_worker() -> None:
    received: list[tuple[str, Any]] = []

    def started(job_type: str, **kwargs: Any) -> None:
        received.append(("started", job_type))

    def succeeded(job_type: str, **kwargs: Any) -> None:
        received.append(("succeeded", job_type))

    signals.job_started.connect(started)
    signals.job_succeeded.connect(succeeded)
    try:
        jobs.nothing.enqueue()
        run_jobs()
    finally:
        signals.job_started.disconnect(started)
        signals.job_succeeded.disconnect(succeeded)
    assert received == [
        ("started", "testapp.nothing"),
        ("succeeded", "testapp.nothing"),
    ]


def test_async_handlers_time_out() -> None:
    jobs.await_for_ever.enqueue()

    [ran] = run_jobs(raise_errors=False)

    assert (ran.outcome, ran.is_dead) == ("timeout", True)


def test_jobs_of_enqueue_many_run() -> None:
    Job.objects.enqueue_many(JobSpec("testapp.add", {"x": x}) for x in range(3))

    assert run_jobs().results == [1, 2, 3]


def test_of_selects_the_attempts_of_one_handler() -> None:
    jobs.add.enqueue(x=1)
    jobs.EmailHandler.enqueue(to="me")

    ran = run_jobs()

    assert ran.of(jobs.add).results == ran.of("testapp.add").results == [2]
    assert ran.of(jobs.EmailHandler).job_ids == [ran[1].job_id]
    task = SimpleNamespace(module_path="testapp.add")
    assert ran.of(task).results == [2]
    with pytest.raises(UnknownJobType):
        ran.of("testapp.typo")
    with pytest.raises(TypeError, match="or the name of one, not 3"):
        ran.of(3)


def test_async_tests_run_jobs_in_their_own_transaction() -> None:
    async def scenario() -> RanJobs:
        await jobs.leave_effect_async.aenqueue(name="awaited")
        await jobs.add.aenqueue(x=1)
        return await arun_jobs()

    ran = async_to_sync(scenario)()

    assert ran.results == ["awaited", 2]
    assert Effect.objects.get().name == "awaited"


def test_what_a_handler_activates_is_not_seen_by_the_test() -> None:
    @job("testing.activate")
    def activate() -> str:
        seen = translation.get_language()
        translation.activate("de")
        return str(seen)

    with translation.override("fr"):
        activate.enqueue()
        activate.enqueue()
        assert run_jobs().results == ["fr", "fr"]
        assert translation.get_language() == "fr"
