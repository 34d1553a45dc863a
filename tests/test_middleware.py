"""Middleware around handlers: what it can change, and what its failures do."""

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
from django_jobqueue.middleware import load_chain
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import Died, GivenBack, Retried, Succeeded
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from django_jobqueue.worker.running.attempt import arun_attempt, run_attempt
from django_jobqueue.worker.running.attempt_env import AttemptEnv
from django_jobqueue.worker.running.in_flight import InFlightJob
from tests.lifecycle.claiming import WORKER, claim_one
from tests.processes import run_burst
from tests.testapp import jobs, middleware
from tests.testapp.models import Effect
from tests.waiting import wait_until

# An attempt closes the connections of its thread: no test transaction can stay open.
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


def make_attempt_env() -> AttemptEnv:
    return AttemptEnv(
        options=get_options(),
        worker_id=WORKER,
        report_progress=lambda claim, progress: None,
        report_started=lambda claim: None,
    )


def claim() -> InFlightJob:
    return InFlightJob(claim_one(Database(alias="default")))


def run(*names: str) -> Ending:
    """Run one attempt of the only job with these middleware."""
    job_in_flight = claim()
    with override_settings(JOBQUEUE={"MIDDLEWARE": [f"{PLACE}.{n}" for n in names]}):
        if registry.get_handler(job_in_flight.claim.job_type).is_async:
            # Not asyncio.run(): its query thread would keep its connection open.
            return async_to_sync(arun_attempt)(job_in_flight, make_attempt_env())
        return run_attempt(job_in_flight, make_attempt_env())


def find_failure(ending: Ending) -> Any:
    assert isinstance(ending.outcome, Retried), ending.outcome
    return ending.outcome.failure


def test_an_empty_list_loads_no_middleware() -> None:
    assert get_options().middleware == ()
    assert load_chain.cache_info().currsize == 0


@pytest.mark.parametrize("handler", [jobs.add, jobs.add_async])
def test_the_first_is_the_outermost_and_the_result_is_that_of_the_handler(
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
        # The return value of a middleware reaches the next one, not the job.
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


def test_a_class_can_change_the_payload() -> None:
    jobs.add.enqueue(2, y=3)
    assert run("AddTen").outcome == Succeeded("15")


def test_class_handlers_run_through_it_with_any_payload_key() -> None:
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
def test_an_exception_before_the_handler_fails_the_attempt_and_names_the_middleware(
    handler: Any,
) -> None:
    handler.enqueue(1)

    failure = find_failure(run("outer", "fail_before"))

    assert failure.short == "LookupError: no such tenant"
    assert f"Raised in the middleware {PLACE}.fail_before." in failure.traceback
    assert "middleware.outer" not in failure.traceback
    assert middleware.events[-1][0] == "outer ends"


def test_an_exception_of_the_handler_names_no_middleware() -> None:
    @job("middleware.fails")
    def fails() -> None:
        raise LookupError("of the handler")

    fails.enqueue()
    failure = find_failure(run("outer"))
    assert failure.short == "LookupError: of the handler"
    assert "Raised in the middleware" not in failure.traceback


def test_an_exception_after_the_handler_fails_the_attempt() -> None:
    jobs.add.enqueue(1)
    assert find_failure(run("fail_after")).message == "too late"


def test_an_exception_after_the_commit_of_an_atomic_job_is_only_logged(
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


def test_middleware_runs_outside_the_transaction_of_an_atomic_job() -> None:
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


def test_middleware_can_snooze_the_job() -> None:
    jobs.add.enqueue(1)
    outcome = run("snooze").outcome
    assert isinstance(outcome, GivenBack)
    assert outcome.delay is not None
    assert outcome.delay.total_seconds() == 60


@pytest.mark.parametrize("is_async", [False, True])
def test_a_swallowed_exception_still_fails_the_attempt(
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
def test_not_calling_the_handler_fails_the_attempt(handler: Any) -> None:
    handler.enqueue(1)
    failure = find_failure(run("outer", "forget"))
    assert failure.exception_class == "django_jobqueue.exceptions.MiddlewareError"
    assert failure.message == (
        f"The middleware {PLACE}.forget returned without calling the handler. It must "
        f"call call_next(context, args, payload), or raise Snooze, Cancel or Discard."
    )


def test_calling_the_handler_twice_fails_the_attempt() -> None:
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


def test_the_timeout_interrupts_middleware_of_async_handlers() -> None:
    jobs.add_async.using(timeout=0.05).enqueue(1)
    failure = find_failure(run("linger"))
    assert failure.exception_class.endswith("JobTimeout")


def test_the_timeout_interrupts_middleware_of_sync_handlers() -> None:
    jobs.add.enqueue(1)
    job_in_flight = claim()

    def time_out() -> None:
        wait_until(lambda: bool(middleware.events))
        job_in_flight.interrupt(JobTimeout)

    clock = threading.Thread(target=time_out)
    clock.start()
    with override_settings(JOBQUEUE={"MIDDLEWARE": [f"{PLACE}.linger"]}):
        ending = run_attempt(job_in_flight, make_attempt_env())
    clock.join()
    assert find_failure(ending).exception_class.endswith("JobTimeout")


def test_discard_on_of_the_handler_applies_to_middleware() -> None:
    @job("middleware.discards", discard_on=LookupError)
    def discards() -> None: ...

    discards.enqueue()
    assert isinstance(run("fail_before").outcome, Died)


def test_a_factory_that_raises_middleware_not_used_is_left_out() -> None:
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
            f"The middleware {PLACE}.only_sync supports sync handlers only and cannot "
            f"run around async handlers. Let it support both, with "
            f"sync_and_async_middleware from django.utils.decorators.",
        ),
        (
            f"{PLACE}.only_async",
            False,
            f"The middleware {PLACE}.only_async supports async handlers only and "
            f"cannot run around sync handlers. Let it support both, with "
            f"sync_and_async_middleware from django.utils.decorators.",
        ),
    ],
)
def test_an_unusable_middleware_is_a_configuration_error(
    path: str, is_async: bool, message: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_chain((path,), is_async=is_async)
    assert str(caught.value) == message


def test_a_worker_does_not_start_with_an_unusable_middleware() -> None:
    with (
        override_settings(JOBQUEUE={"MIDDLEWARE": ["tests.nowhere.set_tenant"]}),
        pytest.raises(CommandError, match=r"'tests\.nowhere\.set_tenant' in JOBQUEUE"),
    ):
        call_command("runworker", skip_checks=True, in_process=True)


@pytest.mark.slow
def test_jobs_survive_a_failing_middleware(
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
