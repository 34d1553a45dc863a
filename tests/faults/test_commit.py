"""Atomic jobs whose COMMIT breaks, or that raise after it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction

from django_jobqueue import DeadJob, Job, JobContext, JobTimeout, job
from django_jobqueue.exceptions import JobCancelled
from django_jobqueue.lifecycle.finish import FinishReport, finish_attempts
from django_jobqueue.models import Attempt
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import GivenBack, Retried, Succeeded
from django_jobqueue.storage import commit_check
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from django_jobqueue.worker.running import call as run_module
from django_jobqueue.worker.running.attempt import run_attempt
from django_jobqueue.worker.running.attempt_env import AttemptEnv
from django_jobqueue.worker.running.in_flight import InFlightJob
from tests.lifecycle.claiming import WORKER, claim_one
from tests.processes import WorkerProcess
from tests.proxy import CuttingProxy
from tests.testapp import jobs
from tests.testapp.models import Effect
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "business"]),
    pytest.mark.slow,
    pytest.mark.timeout(180),
]

# The text of a COMMIT in a request and in its reply.
COMMIT = b"COMMIT\0"
# Prune commits too: cut only transactions that wrote an effect.
EFFECT = b"testapp_effect"

hooks: list[Callable[[], Any]] = []
hooks_elsewhere: list[Callable[[], Any]] = []
runs: list[int] = []


@job("faults.leave_effect", atomic=True, takes_context=True)
def leave_effect(context: JobContext) -> int:
    runs.append(context.attempt)
    Effect.objects.create(name="effect", job_id=context.job_id)
    for hook in hooks:
        transaction.on_commit(hook)
    return len(runs)


@job("faults.leave_effects", atomic=True, databases=["default", "business"])
def leave_effects() -> None:
    Effect.objects.create(name="here")
    Effect.objects.using("business").create(name="there")
    for hook in hooks_elsewhere:
        transaction.on_commit(hook, using="business", robust=True)


@pytest.fixture(autouse=True)
def _no_hooks() -> None:
    for each in (hooks, hooks_elsewhere, runs):
        each.clear()


@pytest.fixture
def in_flight() -> InFlightJob:
    """Return the claim of one job of leave_effect()."""
    leave_effect.enqueue()
    return InFlightJob(claim_one(Database(alias="default")))


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[CuttingProxy]:
    """Put a proxy between this thread and the database."""
    server = {key: connection.settings_dict[key] for key in ("HOST", "PORT")}
    with CuttingProxy(server["HOST"], int(server["PORT"])) as between:
        connection.close()
        connection.settings_dict |= {"HOST": "127.0.0.1", "PORT": str(between.port)}
        yield between
        connection.close()
        connection.settings_dict |= server


def run(in_flight: InFlightJob) -> Ending:
    """Run one attempt in this thread, as a worker's thread would."""
    env = AttemptEnv(
        options=get_options(),
        worker_id=WORKER,
        report_progress=lambda claim, progress: None,
        report_started=lambda claim: None,
    )
    return run_attempt(in_flight, env)


def finish(ending: Ending) -> FinishReport:
    database = Database(alias="default")
    return finish_attempts(database, [ending], worker_id=WORKER, options=get_options())


def find_state(in_flight: InFlightJob) -> tuple[str, int, int]:
    """Return the job's status, its attempts, and how many effects it has left."""
    found = Job.objects.get(pk=in_flight.claim.id)
    effects = Effect.objects.filter(job_id=found.pk).count()
    return found.status, found.attempts, effects


# The connection breaks.


@pytest.mark.postgresql
def test_a_commit_whose_reply_is_lost_is_a_success(
    in_flight: InFlightJob, proxy: CuttingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.cut_replies(COMMIT, after=EFFECT)

    ending = run(in_flight)

    assert proxy.cuts == 1
    assert (type(ending.outcome), ending.is_written) == (Succeeded, True)
    assert find_state(in_flight) == ("succeeded", 1, 1)
    assert "commit found" in caplog.text


@pytest.mark.postgresql
def test_a_commit_that_never_arrives_gives_the_attempt_back(
    in_flight: InFlightJob, proxy: CuttingProxy
) -> None:
    proxy.cut_requests(COMMIT, after=EFFECT)

    ending = run(in_flight)

    assert proxy.cuts == 1
    assert isinstance(ending.outcome, GivenBack)
    assert (ending.outcome.is_trouble, ending.is_written) == (True, False)
    assert find_state(in_flight) == ("running", 1, 0)
    assert len(finish(ending).done) == 1
    assert find_state(in_flight) == ("scheduled", 0, 0)


@pytest.mark.postgresql
def test_a_commit_without_a_reply_is_checked_when_the_database_is_back(
    in_flight: InFlightJob, proxy: CuttingProxy
) -> None:
    proxy.cut_replies(COMMIT, after=EFFECT, then_refuse=5)

    ending = run(in_flight)

    assert (type(ending.outcome), ending.is_written) == (Succeeded, True)
    assert find_state(in_flight) == ("succeeded", 1, 1)


@pytest.mark.postgresql
def test_finish_finds_the_commit_if_the_check_gave_up(
    in_flight: InFlightJob, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_once = partial(commit_check.check_commit, retry_for=timedelta())
    monkeypatch.setattr(run_module, "check_commit", check_once)
    proxy.cut_replies(COMMIT, after=EFFECT, then_refuse=2)

    ending = run(in_flight)

    assert isinstance(ending.outcome, GivenBack)
    report = finish(ending)
    assert [type(done.outcome) for done in report.done] == [Succeeded]
    assert find_state(in_flight) == ("succeeded", 1, 1)


@pytest.mark.postgresql
def test_a_job_that_was_rescued_meanwhile_has_lost_its_lease(
    in_flight: InFlightJob, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rescue(seconds: float) -> None:
        Job.objects.filter(lease_token=1).update(lease_token=3, worker_id=uuid4())

    monkeypatch.setattr(commit_check.time, "sleep", rescue)
    proxy.cut_requests(COMMIT, after=EFFECT, then_refuse=2)

    ending = run(in_flight)

    assert isinstance(ending.outcome, Retried)
    assert ending.outcome.failure.exception_class.endswith("LeaseLost")
    assert [lost.claim for lost in finish(ending).lost] == [in_flight.claim]
    assert find_state(in_flight) == ("running", 1, 0)


# The server refuses the commit.


@pytest.fixture
def colliding_commits(transactional_db: None) -> Iterator[None]:
    """Make the first two commits of an effect fail as collisions do."""
    with connection.cursor() as cursor:
        cursor.execute(COLLIDE)
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION collide CASCADE; DROP SEQUENCE collisions")


# A sequence is not rolled back.
COLLIDE = """
    CREATE SEQUENCE collisions;
    CREATE FUNCTION collide() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('collisions') < 3 THEN
            RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001';
        END IF;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER collide AFTER INSERT ON testapp_effect
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION collide()
"""


@pytest.mark.postgresql
@pytest.mark.usefixtures("colliding_commits")
def test_a_commit_that_collides_runs_again_at_once(in_flight: InFlightJob) -> None:
    ending = run(in_flight)

    assert (ending.outcome, ending.is_written) == (Succeeded("3"), True)
    assert runs == [1, 1, 1]
    assert find_state(in_flight) == ("succeeded", 1, 1)


@pytest.mark.postgresql
@pytest.mark.usefixtures("colliding_commits")
def test_all_runs_of_one_attempt_share_its_timeout(
    in_flight: InFlightJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float] = []
    enter = InFlightJob.enter

    def note_and_enter(self: InFlightJob, *, timeout: float, most: int) -> None:
        timeouts.append(timeout)
        enter(self, timeout=timeout, most=most)

    monkeypatch.setattr(InFlightJob, "enter", note_and_enter)

    ending = run(in_flight)

    assert 900 >= timeouts[0] > timeouts[1] > timeouts[2] > 900 - ending.ran


# Hooks of on_commit().


def test_a_hook_that_raises_does_not_fail_the_job(
    in_flight: InFlightJob, caplog: pytest.LogCaptureFixture
) -> None:
    hooks.append(lambda: {}["no such key"])
    hooks.append(lambda: runs.append(0))

    ending = run(in_flight)

    assert (type(ending.outcome), ending.is_written) == (Succeeded, True)
    assert find_state(in_flight) == ("succeeded", 1, 1)
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert str(in_flight.claim.id) in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError
    # Django's rule: the hooks after that one do not run.
    assert runs == [1]


def test_a_serialization_failure_in_a_hook_does_not_run_the_job_again(
    in_flight: InFlightJob,
) -> None:
    hooks.append(collide)

    assert type(run(in_flight).outcome) is Succeeded
    assert runs == [1]
    assert find_state(in_flight) == ("succeeded", 1, 1)


def collide() -> None:
    cause = Exception("could not serialize access")
    cause.sqlstate = "40001"  # type: ignore[attr-defined]
    raise OperationalError("could not serialize access") from cause


def test_a_hook_that_exits_python_does_not_fail_the_job(in_flight: InFlightJob) -> None:
    hooks.append(lambda: exit(3))

    assert type(run(in_flight).outcome) is Succeeded
    assert find_state(in_flight) == ("succeeded", 1, 1)


def test_a_silent_rollback_is_no_success() -> None:
    """Django rolls back without an error after set_rollback(True)."""
    hooks_elsewhere.append(lambda: transaction.set_rollback(True, using="default"))
    leave_effects.enqueue()
    in_flight = InFlightJob(claim_one(Database(alias="default")))

    ending = run(in_flight)

    assert (type(ending.outcome), ending.is_written) == (Retried, False)
    assert Job.objects.get().status == "running"
    assert Effect.objects.count() == 0
    # At least once: that database had committed before.
    assert Effect.objects.using("business").count() == 1


# Interrupts.


def interrupt(in_flight: InFlightJob, cause: type[JobTimeout]) -> None:
    """Interrupt the attempt from another thread, as a worker does, and wait for it."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(in_flight.interrupt, cause)
        wait_until(lambda: executor.submit(in_flight.deliver).result(30), pause=0.001)


@pytest.mark.parametrize("cause", [JobTimeout, JobCancelled])
def test_a_hook_that_is_interrupted_does_not_fail_the_job(
    in_flight: InFlightJob, cause: type[JobTimeout]
) -> None:
    hooks.append(lambda: interrupt(in_flight, cause))

    assert type(run(in_flight).outcome) is Succeeded
    assert find_state(in_flight) == ("succeeded", 1, 1)


@pytest.mark.parametrize("cause", [JobTimeout, JobCancelled])
def test_an_interrupt_after_the_commit_is_too_late(
    in_flight: InFlightJob, monkeypatch: pytest.MonkeyPatch, cause: type[JobTimeout]
) -> None:
    def commit_and_interrupt() -> None:
        monkeypatch.undo()
        connection._commit()
        interrupt(in_flight, cause)

    monkeypatch.setattr(connection, "_commit", commit_and_interrupt)

    ending = run(in_flight)

    assert in_flight.interruption is cause
    assert (type(ending.outcome), ending.is_written) == (Succeeded, True)
    assert find_state(in_flight) == ("succeeded", 1, 1)


# Not on SQLite: there Python's module commits anyway when Django ends the block.
@pytest.mark.postgresql
def test_an_interrupt_before_the_commit_rolls_back(
    in_flight: InFlightJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt_instead() -> None:
        monkeypatch.undo()
        interrupt(in_flight, JobTimeout)

    monkeypatch.setattr(connection, "_commit", interrupt_instead)

    ending = run(in_flight)

    assert isinstance(ending.outcome, Retried)
    assert (ending.outcome.label, ending.is_written) == ("timeout", False)
    assert find_state(in_flight) == ("running", 1, 0)


# Many of them, in a real worker.


def count_effects() -> dict[str, int]:
    """Count what atomic jobs have left: effects, enqueued jobs, successes."""
    atomic = Job.objects.filter(job_type=jobs.leave_effect_atomically.name)
    return {
        "effects": Effect.objects.count(),
        "jobs with an effect": Effect.objects.values("job_id").distinct().count(),
        "follow-ups": Job.objects.filter(queue="follow-up").count(),
        "succeeded": atomic.filter(status="succeeded", attempts=1).count(),
    }


@pytest.fixture
def proxied_env(
    worker_env: dict[str, str], transactional_db: None
) -> Iterator[tuple[CuttingProxy, dict[str, str]]]:
    """Yield a proxy, and the environment of workers that connect through it."""
    database = settings.DATABASES["default"]
    with CuttingProxy(database["HOST"], int(database["PORT"])) as proxy:
        url = f"postgres://{database['USER']}@127.0.0.1:{proxy.port}/postgres"
        yield proxy, {**worker_env, "DATABASE_URL": url}


@pytest.mark.postgresql
def test_twenty_broken_commits_neither_lose_nor_double_anything(
    proxied_env: tuple[CuttingProxy, dict[str, str]],
) -> None:
    proxy, env = proxied_env
    proxy.cut_replies(COMMIT, after=EFFECT, times=10, spare=3)
    proxy.cut_requests(COMMIT, after=EFFECT, times=10, spare=4)
    # One attempt each: an attempt that is lost would make a dead job.
    once = jobs.leave_effect_atomically.using(max_attempts=1)
    Job.objects.enqueue_many(once.spec(name="once") for _ in range(150))
    with WorkerProcess(env, "--concurrency", "4") as worker:
        wait_until(lambda: count_effects()["succeeded"] == 150, timeout=90)
        wait_until(lambda: not Job.objects.exclude(status="succeeded").exists())
        assert worker.stop() == 0
        assert not worker.has_logged("lease lost")
        assert worker.read_log().count("commit found") == 10
    assert proxy.cuts == 20
    assert set(count_effects().values()) == {150}
    assert not DeadJob.objects.exists()
    # Each request that was cut gave one attempt back. Others are released without an
    # error: on a busy machine a job that cannot start within a second is.
    broken = Attempt.objects.filter(outcome="released").exclude(exception_class="")
    assert broken.count() == 10
    for row in Job.objects.all():
        assert read_outcomes(row) == list_outcomes(row.lease_token)


def read_outcomes(job: Job) -> list[str]:
    rows = Attempt.objects.filter(job_id=job.pk).order_by("lease_token")
    return list(rows.values_list("outcome", flat=True))


def list_outcomes(claims: int) -> list[str]:
    """Return the attempts of a job that only the last of its claims has ended.

    A request may also be cut when the job runs again. Then it has more than one
    released attempt, but still one success.
    """
    return ["released"] * (claims - 1) + ["succeeded"] if claims > 1 else []


@pytest.mark.postgresql
def test_a_job_whose_commit_breaks_twice_has_two_released_attempts_and_one_success(
    proxied_env: tuple[CuttingProxy, dict[str, str]],
) -> None:
    proxy, env = proxied_env
    proxy.cut_requests(COMMIT, after=EFFECT, times=2)
    job = jobs.leave_effect_atomically.using(max_attempts=1).enqueue(name="once")
    with WorkerProcess(env) as worker:
        done = job.wait(timeout=60)
        assert (done.attempts, done.lease_token) == (1, 3)
        assert worker.stop() == 0
    assert proxy.cuts == 2
    assert read_outcomes(job) == ["released", "released", "succeeded"]
    assert Effect.objects.filter(job_id=job.pk).count() == 1


@pytest.mark.postgresql
def test_twenty_claims_in_a_row_without_a_reply_neither_lose_nor_double_anything(
    proxied_env: tuple[CuttingProxy, dict[str, str]],
) -> None:
    proxy, env = proxied_env
    proxy.cut_replies(b"cut me here", times=20)
    once = jobs.leave_effect_atomically.using(max_attempts=1)
    Job.objects.enqueue_many(once.spec(name="cut me here") for _ in range(150))
    # Four workers share the losses: each waits longer after each loss.
    workers = [WorkerProcess(env, "--concurrency", "4") for _ in range(4)]
    with workers[0], workers[1], workers[2], workers[3]:
        wait_until(lambda: count_effects()["succeeded"] == 150, timeout=120)
        wait_until(lambda: not Job.objects.exclude(status="succeeded").exists())
        assert [worker.stop() for worker in workers] == [0] * 4
        assert not any(worker.has_logged("lease lost") for worker in workers)
    assert proxy.cuts == 20
    assert set(count_effects().values()) == {150}
    assert not DeadJob.objects.exists()
