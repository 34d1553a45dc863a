"""Middleware around handlers: what it may do, and what happens when it fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings

from django_jobqueue import DeadJob, Job, job, registry
from django_jobqueue.exceptions import ConfigurationError, JobTimeout
from django_jobqueue.lifecycle.database import Database
from django_jobqueue.lifecycle.endings import Ending
from django_jobqueue.middleware import load_chain
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import Died, GivenBack, Retried, Succeeded
from django_jobqueue.worker.attempt import arun_attempt, run_attempt
from django_jobqueue.worker.bench import Bench
from django_jobqueue.worker.held import HeldJob
from tests.lifecycle.claiming import WORKER, claim_one
from tests.processes import run_burst
from tests.testapp import jobs, middleware
from tests.testapp.models import Effect
from tests.waiting import wait_until

# An attempt tidies the connections of its thread: no transaction stays around it.
pytestmark = pytest.mark.django_db(transaction=True)

PLACE = "tests.testapp.middleware"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    middleware.events.clear()
    middleware.made.clear()
    load_chain.cache_clear()
    yield
    load_chain.cache_clear()


def make_bench() -> Bench:
    return Bench(
        options=get_options(),
        worker_id=WORKER,
        report_progress=lambda claim, progress: None,
        report_started=lambda claim: None,
    )


def claim() -> HeldJob:
    return HeldJob(claim_one(Database(alias="default")))


def run(*names: str) -> Ending:
    """Run one attempt of the only job there is, through these middleware."""
    held = claim()
    with override_settings(JOBQUEUE={"MIDDLEWARE": [f"{PLACE}.{n}" for n in names]}):
        if registry.get_handler(held.claim.job_type).is_async:
            # Not asyncio.run(): the thread it queries in would keep its connection.
            return async_to_sync(arun_attempt)(held, make_bench())
        return run_attempt(held, make_bench())


def find_failure(ending: Ending) -> Any:
    assert isinstance(ending.outcome, Retried), ending.outcome
    return ending.outcome.failure


def test_nothing_is_loaded_for_an_empty_list() -> None:
    assert get_options().middleware == ()
    assert load_chain.cache_info().currsize == 0


@pytest.mark.parametrize("handler", [jobs.add, jobs.add_async])
def test_the_first_is_the_outermost_and_the_result_is_the_handlers(
    handler: Any,
) -> None:
    handler.enqueue(2, y=3)

    ending = run("outer", "inner")

    name = handler.name
    assert ending.outcome == Succeeded("5")
    assert middleware.events == [
        ("outer begins", name),
        ("inner begins", name),
        ("inner sees", 5),
        ("inner ends", name),
        # The inner one returned something else, or nothing.
        ("outer sees", "of the middleware" if handler is jobs.add else None),
        ("outer ends", name),
    ]


def test_a_factory_is_called_once_in_each_process_and_mode() -> None:
    for handler in (jobs.add, jobs.add_async, jobs.add, jobs.add_async):
        handler.enqueue(1)
        run("outer", "inner")

    assert sorted(middleware.made) == [
        ("inner", False),
        ("inner", True),
        ("outer", False),
        ("outer", True),
    ]


def test_a_class_can_change_what_the_handler_is_given() -> None:
    jobs.add.enqueue(2, y=3)
    assert run("AddTen").outcome == Succeeded("15")


def test_class_handlers_and_any_key_of_their_payload_go_through() -> None:
    handler = jobs.EmailHandler.using(queue="default")
    handler.enqueue(to="ada@example.com", context="greeting", args=1)
    assert isinstance(run("outer").outcome, Succeeded)
    assert middleware.events[0] == ("outer begins", handler.name)


@pytest.mark.parametrize("handler", [jobs.add, jobs.add_async])
def test_the_meta_of_a_job_can_be_read(handler: Any) -> None:
    handler.using(meta={"tenant": "acme"}).enqueue(1)
    run("read_tenant")
    assert middleware.events == [("tenant", "acme")]


@pytest.mark.parametrize("handler", [jobs.add, jobs.add_async])
def test_one_that_raises_is_a_failed_attempt_that_names_it(handler: Any) -> None:
    handler.enqueue(1)

    failure = find_failure(run("outer", "fail_before"))

    assert failure.short == "LookupError: no such tenant"
    assert f"Raised in the middleware {PLACE}.fail_before." in failure.traceback
    assert "middleware.outer" not in failure.traceback
    assert middleware.events[-1][0] == "outer ends"


def test_what_the_handler_raises_is_not_ascribed_to_a_middleware() -> None:
    @job("middleware.fails")
    def fails() -> None:
        raise LookupError("of the handler")

    fails.enqueue()
    failure = find_failure(run("outer"))
    assert failure.short == "LookupError: of the handler"
    assert "Raised in the middleware" not in failure.traceback


def test_one_that_raises_after_a_handler_that_is_not_atomic_fails_the_attempt() -> None:
    jobs.add.enqueue(1)
    assert find_failure(run("fail_after")).message == "too late"


def test_one_that_raises_after_the_commit_of_an_atomic_job_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @job("middleware.atomic", atomic=True)
    def leave_effect() -> None:
        Effect.objects.create(name="atomic")

    enqueued = leave_effect.enqueue()
    ending = run("fail_after")
    assert (type(ending.outcome), ending.is_written) == (Succeeded, True)
    assert Job.objects.get(pk=enqueued.pk).status == "succeeded"
    assert Effect.objects.count() == 1
    assert "too late" in caplog.text


def test_middleware_runs_outside_of_the_transaction_of_an_atomic_job() -> None:
    seen = []

    @job("middleware.inside", atomic=True)
    def note() -> None:
        seen.append(connection.in_atomic_block)

    note.enqueue()
    assert isinstance(run("outer").outcome, Succeeded)
    note.enqueue()
    assert isinstance(run("snooze").outcome, GivenBack)
    assert seen == [True]
    assert Job.objects.get(status="running").attempts == 1


def test_one_can_steer_the_job_as_its_handler_could() -> None:
    jobs.add.enqueue(1)
    outcome = run("snooze").outcome
    assert isinstance(outcome, GivenBack)
    assert outcome.delay is not None
    assert outcome.delay.total_seconds() == 60


@pytest.mark.parametrize("is_async", [False, True])
def test_one_that_swallows_what_the_handler_raised_does_not_make_it_a_success(
    is_async: bool,
) -> None:
    if is_async:

        @job("middleware.swallowed")
        async def later() -> None:
            raise LookupError("of the handler")

        later.enqueue()
    else:

        @job("middleware.swallowed")
        def now() -> None:
            raise LookupError("of the handler")

        now.enqueue()
    ending = run("swallow")
    assert middleware.events == [("swallowed", "middleware.swallowed")]
    assert find_failure(ending).short == "LookupError: of the handler"


@pytest.mark.parametrize("handler", [jobs.add, jobs.add_async])
def test_one_that_does_not_call_the_handler_is_a_failed_attempt(handler: Any) -> None:
    handler.enqueue(1)
    failure = find_failure(run("outer", "forget"))
    assert failure.exception_class == "django_jobqueue.exceptions.MiddlewareError"
    assert failure.message == (
        f"The middleware {PLACE}.forget returned without calling the handler. It must "
        f"call call_next(context, args, payload), or raise Snooze, Cancel or Discard "
        f"to say what becomes of the job."
    )


def test_the_handler_runs_once_in_an_attempt() -> None:
    calls = []

    @job("middleware.counted")
    def count() -> None:
        calls.append(1)

    count.enqueue()
    failure = find_failure(run("repeat"))
    assert failure.message.startswith(
        f"The middleware {PLACE}.repeat called call_next() twice"
    )
    assert calls == [1]


def test_the_timeout_holds_for_middleware_of_async_handlers() -> None:
    jobs.add_async.using(timeout=0.05).enqueue(1)
    failure = find_failure(run("linger"))
    assert failure.exception_class.endswith("JobTimeout")


def test_the_timeout_holds_for_middleware_of_sync_handlers() -> None:
    jobs.add.enqueue(1)
    held = claim()

    def time_out() -> None:
        wait_until(lambda: bool(middleware.events))
        held.interrupt(JobTimeout)

    clock = threading.Thread(target=time_out)
    clock.start()
    with override_settings(JOBQUEUE={"MIDDLEWARE": [f"{PLACE}.linger"]}):
        ending = run_attempt(held, make_bench())
    clock.join()
    assert find_failure(ending).exception_class.endswith("JobTimeout")


def test_a_permanent_error_of_a_middleware_is_judged_by_the_handlers_options() -> None:
    @job("middleware.discards", discard_on=LookupError)
    def discards() -> None: ...

    discards.enqueue()
    assert isinstance(run("fail_before").outcome, Died)


def test_one_that_is_not_used_is_left_out() -> None:
    load_chain((f"{PLACE}.not_used", f"{PLACE}.outer"), is_async=False)
    assert middleware.made == [("outer", False)]


@pytest.mark.parametrize(
    ("path", "is_async", "message"),
    [
        (
            "tests.testapp.middlewares.outer",
            False,
            "The middleware 'tests.testapp.middlewares.outer' in "
            "JOBQUEUE['MIDDLEWARE'] cannot be imported: No module named "
            "'tests.testapp.middlewares'. Write the dotted path of a function or "
            "class.",
        ),
        (
            f"{PLACE}.not_callable",
            False,
            f"The middleware '{PLACE}.not_callable' in JOBQUEUE['MIDDLEWARE'] is "
            f"'a text'; it must be a function or class that takes call_next.",
        ),
        (
            f"{PLACE}.returns_nothing",
            False,
            f"The middleware {PLACE}.returns_nothing returned None for call_next; it "
            f"must return a function (context, args, payload).",
        ),
        (
            f"{PLACE}.only_sync",
            True,
            f"The middleware {PLACE}.only_sync is for sync handlers only, and cannot "
            f"run around async ones. Make it both, with sync_and_async_middleware of "
            f"django.utils.decorators.",
        ),
        (
            f"{PLACE}.only_async",
            False,
            f"The middleware {PLACE}.only_async is for async handlers only, and "
            f"cannot run around sync ones. Make it both, with "
            f"sync_and_async_middleware of django.utils.decorators.",
        ),
    ],
)
def test_what_cannot_be_used_is_said(path: str, is_async: bool, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_chain((path,), is_async=is_async)
    assert str(caught.value) == message


def test_a_worker_that_skips_the_checks_does_not_start_without_it() -> None:
    with (
        override_settings(JOBQUEUE={"MIDDLEWARE": ["tests.nowhere.set_tenant"]}),
        pytest.raises(CommandError, match=r"'tests\.nowhere\.set_tenant' in JOBQUEUE"),
    ):
        call_command("runworker", skip_checks=True, in_process=True)


@pytest.mark.slow
def test_a_failing_middleware_loses_no_job_and_stops_no_worker(
    worker_env: dict[str, str],
) -> None:
    enqueued = [
        jobs.add.using(max_attempts=2, backoff=0).enqueue(1),
        jobs.add_async.using(max_attempts=2, backoff=0).enqueue(1),
    ]
    paths = f"{PLACE}.outer,{PLACE}.fail_before"
    run_burst(worker_env, JOBQUEUE_MIDDLEWARE=paths)
    for dead in DeadJob.objects.in_bulk([each.pk for each in enqueued]).values():
        assert (dead.attempts, dead.error) == (2, "LookupError: no such tenant")
    assert DeadJob.objects.requeue().requeued == 2
    run_burst(worker_env, JOBQUEUE_MIDDLEWARE=f"{PLACE}.outer")
    assert [each.wait(timeout=5).result for each in enqueued] == [2, 2]
