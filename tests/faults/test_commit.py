"""Atomic jobs whose COMMIT breaks, or who raise when it is over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction

from django_jobqueue import DeadJob, Job, JobContext, JobTimeout, job
from django_jobqueue.exceptions import JobCancelled
from django_jobqueue.lifecycle import settle
from django_jobqueue.lifecycle.database import Database
from django_jobqueue.lifecycle.endings import Ending
from django_jobqueue.lifecycle.finish import FinishReport, finish_attempts
from django_jobqueue.models import Attempt
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import GivenBack, Retried, Succeeded
from django_jobqueue.worker import run as run_module
from django_jobqueue.worker.attempt import run_attempt
from django_jobqueue.worker.bench import Bench
from django_jobqueue.worker.held import HeldJob
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

# How PostgreSQL spells it in a request and in its reply.
COMMIT = b"COMMIT\0"
# Prune commits too: only what an atomic job of these tests did is to be cut.
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
def held() -> HeldJob:
    """The claim of one job of leave_effect()."""
    leave_effect.enqueue()
    return HeldJob(claim_one(Database(alias="default")))


@pytest.fixture
def proxy(transactional_db: None) -> Iterator[CuttingProxy]:
    """Stands between this thread and the database."""
    server = {key: connection.settings_dict[key] for key in ("HOST", "PORT")}
    with CuttingProxy(server["HOST"], int(server["PORT"])) as between:
        connection.close()
        connection.settings_dict |= {"HOST": "127.0.0.1", "PORT": str(between.port)}
        yield between
        connection.close()
        connection.settings_dict |= server


def run(held: HeldJob) -> Ending:
    """Run one attempt in this thread, as a worker's thread would."""
    bench = Bench(
        options=get_options(),
        worker_id=WORKER,
        report_progress=lambda claim, progress: None,
        report_started=lambda claim: None,
    )
    return run_attempt(held, bench)


def finish(ending: Ending) -> FinishReport:
    database = Database(alias="default")
    return finish_attempts(database, [ending], worker_id=WORKER, options=get_options())


def find_state(held: HeldJob) -> tuple[str, int, int]:
    """Return the job's status, its attempts, and how many effects it has left."""
    found = Job.objects.get(pk=held.claim.id)
    effects = Effect.objects.filter(job_id=found.pk).count()
    return found.status, found.attempts, effects


# --- the connection breaks


@pytest.mark.postgresql
def test_a_commit_whose_reply_is_lost_is_a_success(
    held: HeldJob, proxy: CuttingProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.cut_replies(COMMIT, after=EFFECT)

    ending = run(held)

    assert proxy.cuts == 1
    assert (type(ending.outcome), ending.is_written) == (Succeeded, True)
    assert find_state(held) == ("succeeded", 1, 1)
    assert "commit found" in caplog.text


@pytest.mark.postgresql
def test_a_commit_that_never_arrives_gives_the_attempt_back(
    held: HeldJob, proxy: CuttingProxy
) -> None:
    proxy.cut_requests(COMMIT, after=EFFECT)

    ending = run(held)

    assert proxy.cuts == 1
    assert isinstance(ending.outcome, GivenBack)
    assert (ending.outcome.is_trouble, ending.is_written) == (True, False)
    assert find_state(held) == ("running", 1, 0)
    assert len(finish(ending).done) == 1
    assert find_state(held) == ("scheduled", 0, 0)


@pytest.mark.postgresql
def test_a_lost_reply_is_settled_when_the_database_is_back(
    held: HeldJob, proxy: CuttingProxy
) -> None:
    proxy.cut_replies(COMMIT, after=EFFECT, then_refuse=5)

    ending = run(held)

    assert (type(ending.outcome), ending.is_written) == (Succeeded, True)
    assert find_state(held) == ("succeeded", 1, 1)


@pytest.mark.postgresql
def test_where_the_database_stays_away_finish_finds_the_commit(
    held: HeldJob, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = partial(settle.settle_commit, patience=timedelta())
    monkeypatch.setattr(run_module, "settle_commit", impatient)
    proxy.cut_replies(COMMIT, after=EFFECT, then_refuse=2)

    ending = run(held)

    assert isinstance(ending.outcome, GivenBack)
    report = finish(ending)
    assert [type(done.outcome) for done in report.done] == [Succeeded]
    assert find_state(held) == ("succeeded", 1, 1)


@pytest.mark.postgresql
def test_a_job_that_was_taken_away_meanwhile_is_lost(
    held: HeldJob, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rescue(seconds: float) -> None:
        Job.objects.filter(lease_token=1).update(lease_token=3, worker_id=uuid4())

    monkeypatch.setattr(settle.time, "sleep", rescue)
    proxy.cut_requests(COMMIT, after=EFFECT, then_refuse=2)

    ending = run(held)

    assert isinstance(ending.outcome, Retried)
    assert ending.outcome.failure.exception_class.endswith("LeaseLost")
    assert [lost.claim for lost in finish(ending).lost] == [held.claim]
    assert find_state(held) == ("running", 1, 0)


# --- the server refuses the commit


@pytest.fixture
def colliding_commits(transactional_db: None) -> Iterator[None]:
    """Make the first two commits of an effect fail as collisions do."""
    with connection.cursor() as cursor:
        cursor.execute(COLLIDE)
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION collide CASCADE; DROP SEQUENCE collisions")


# A sequence goes on over rollbacks.
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
def test_a_commit_that_collides_runs_again_at_once(held: HeldJob) -> None:
    ending = run(held)

    assert (ending.outcome, ending.is_written) == (Succeeded("3"), True)
    assert runs == [1, 1, 1]
    assert find_state(held) == ("succeeded", 1, 1)


@pytest.mark.postgresql
@pytest.mark.usefixtures("colliding_commits")
def test_all_runs_of_one_attempt_share_its_timeout(
    held: HeldJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts: list[float] = []
    enter = HeldJob.enter

    def note_and_enter(self: HeldJob, *, timeout: float, most: int) -> None:
        timeouts.append(timeout)
        enter(self, timeout=timeout, most=most)

    monkeypatch.setattr(HeldJob, "enter", note_and_enter)

    ending = run(held)

    assert 900 >= timeouts[0] > timeouts[1] > timeouts[2] > 900 - ending.ran


# --- hooks


def test_a_hook_that_raises_does_not_fail_the_job(
    held: HeldJob, caplog: pytest.LogCaptureFixture
) -> None:
    hooks.append(lambda: {}["no such key"])
    hooks.append(lambda: runs.append(0))

    ending = run(held)

    assert (type(ending.outcome), ending.is_written) == (Succeeded, True)
    assert find_state(held) == ("succeeded", 1, 1)
    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert str(held.claim.id) in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError
    # As Django does it: the hooks after that one do not run.
    assert runs == [1]


def test_a_hook_that_meets_a_collision_of_its_own_does_not_run_the_job_again(
    held: HeldJob,
) -> None:
    hooks.append(collide)

    assert type(run(held).outcome) is Succeeded
    assert runs == [1]
    assert find_state(held) == ("succeeded", 1, 1)


def collide() -> None:
    cause = Exception("could not serialize access")
    cause.sqlstate = "40001"  # type: ignore[attr-defined]
    raise OperationalError("could not serialize access") from cause


def test_a_hook_that_exits_python_does_not_fail_the_job(held: HeldJob) -> None:
    hooks.append(lambda: exit(3))

    assert type(run(held).outcome) is Succeeded
    assert find_state(held) == ("succeeded", 1, 1)


def test_a_rollback_that_nobody_told_of_is_no_success() -> None:
    """Django rolls back in silence once somebody has asked it to."""
    hooks_elsewhere.append(lambda: transaction.set_rollback(True, using="default"))
    leave_effects.enqueue()
    held = HeldJob(claim_one(Database(alias="default")))

    ending = run(held)

    assert (type(ending.outcome), ending.is_written) == (Retried, False)
    assert Job.objects.get().status == "running"
    assert Effect.objects.count() == 0
    # At least once: that one had committed before.
    assert Effect.objects.using("business").count() == 1


# --- interruptions


@pytest.mark.parametrize("cause", [JobTimeout, JobCancelled])
def test_a_hook_that_is_interrupted_does_not_fail_the_job(
    held: HeldJob, cause: type[JobTimeout]
) -> None:
    hooks.append(lambda: held.interrupt(cause))

    assert type(run(held).outcome) is Succeeded
    assert find_state(held) == ("succeeded", 1, 1)


@pytest.mark.parametrize("cause", [JobTimeout, JobCancelled])
def test_an_interruption_after_the_commit_comes_too_late(
    held: HeldJob, monkeypatch: pytest.MonkeyPatch, cause: type[JobTimeout]
) -> None:
    def commit_and_interrupt() -> None:
        monkeypatch.undo()
        connection._commit()
        held.interrupt(cause)

    monkeypatch.setattr(connection, "_commit", commit_and_interrupt)

    ending = run(held)

    assert held.interruption is cause
    assert (type(ending.outcome), ending.is_written) == (Succeeded, True)
    assert find_state(held) == ("succeeded", 1, 1)


# SQLite commits in spite of it: Python's module does, where Django ends the block.
@pytest.mark.postgresql
def test_an_interruption_before_the_commit_rolls_back(
    held: HeldJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        monkeypatch.undo()
        held.interrupt(JobTimeout)

    monkeypatch.setattr(connection, "_commit", interrupt)

    ending = run(held)

    assert isinstance(ending.outcome, Retried)
    assert (ending.outcome.label, ending.is_written) == ("timeout", False)
    assert find_state(held) == ("running", 1, 0)


# --- many of them, in a real worker


def count_effects() -> dict[str, int]:
    """Return what many atomic jobs have left: effects, jobs of theirs, successes."""
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
    """A proxy, and the environment of workers that go through it."""
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
    # One attempt each: one that is lost on the way would be a dead job.
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
    outcomes = Attempt.objects.values_list("outcome", flat=True)
    assert sorted(outcomes) == ["released"] * 10 + ["succeeded"] * 10


@pytest.mark.postgresql
def test_twenty_claims_in_a_row_without_a_reply_neither_lose_nor_double_anything(
    proxied_env: tuple[CuttingProxy, dict[str, str]],
) -> None:
    proxy, env = proxied_env
    proxy.cut_replies(b"cut me here", times=20)
    once = jobs.leave_effect_atomically.using(max_attempts=1)
    Job.objects.enqueue_many(once.spec(name="cut me here") for _ in range(150))
    # Four share the losses, since each waits longer after each.
    workers = [WorkerProcess(env, "--concurrency", "4") for _ in range(4)]
    with workers[0], workers[1], workers[2], workers[3]:
        wait_until(lambda: count_effects()["succeeded"] == 150, timeout=120)
        wait_until(lambda: not Job.objects.exclude(status="succeeded").exists())
        assert [worker.stop() for worker in workers] == [0] * 4
        assert not any(worker.has_logged("lease lost") for worker in workers)
    assert proxy.cuts == 20
    assert set(count_effects().values()) == {150}
    assert not DeadJob.objects.exists()
