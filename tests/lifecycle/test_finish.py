"""Finish: running → succeeded, scheduled, pending, cancelled, or dead."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from django_jobqueue import DeadJob, Job
from django_jobqueue.exceptions import LeaseLost
from django_jobqueue.failures import Failure
from django_jobqueue.lifecycle.finish import (
    FinishReport,
    finish_attempts,
    finish_in_transaction,
)
from django_jobqueue.lifecycle.promote import promote_jobs
from django_jobqueue.lifecycle.rescue import rescue_jobs
from django_jobqueue.models import Attempt
from django_jobqueue.options import Options, Retention
from django_jobqueue.outcomes import (
    Cancelled,
    Crashed,
    Died,
    GivenBack,
    Lost,
    Outcome,
    Retried,
    Succeeded,
)
from django_jobqueue.states import AttemptOutcome, DeadReason
from django_jobqueue.storage.claims import Claim
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from tests.factories import make_job
from tests.lifecycle.claiming import WORKER, claim, claim_one

FAILURE = Failure(
    exception_class="app.Oops",
    message="it broke",
    traceback="Traceback…",
    fingerprint="abc",
)
SECOND = timedelta(seconds=1)
RETRIED = Retried(delay=timedelta(seconds=60), failure=FAILURE)
RELEASED = GivenBack(label=AttemptOutcome.RELEASED)
SNOOZED = GivenBack(label=AttemptOutcome.SNOOZED, delay=timedelta(seconds=60))
DIED = Died(reason=DeadReason.EXCEPTION, failure=FAILURE)
UNKNOWN = GivenBack(label=AttemptOutcome.UNKNOWN_HANDLER, delay=timedelta(seconds=5))
CRASHED = Crashed(delay=timedelta(seconds=2), failure=FAILURE, is_alone=False)
CRASHED_FOR_GOOD = Died(
    reason=DeadReason.CRASHED,
    failure=FAILURE,
    label=AttemptOutcome.CRASHED,
    crash=1,
)
OUTCOMES: list[Outcome] = [
    Succeeded("1"),
    RETRIED,
    RELEASED,
    SNOOZED,
    CRASHED,
    Cancelled("no"),
    DIED,
]


def finish(
    database: Database, claimed: Claim, outcome: Outcome, options: Options, **more: Any
) -> FinishReport:
    return finish_attempts(
        database,
        [Ending(claim=claimed, outcome=outcome, **more)],
        worker_id=WORKER,
        options=options,
    )


def test_a_success_keeps_the_result_and_frees_the_key(
    database: Database, options: Options
) -> None:
    job = make_job(unique_key="k")
    claimed = claim_one(database)

    report = finish(database, claimed, Succeeded('{"sum": 3}'), options, started=0.0)

    job.refresh_from_db()
    assert [ending.claim for ending in report.done] == [claimed]
    assert (job.status, job.result, job.unique_key) == ("succeeded", {"sum": 3}, None)
    assert (job.worker_id, job.finished_by) == (None, WORKER)
    assert job.started_at < job.finished_at
    assert job.prune_at == job.finished_at + timedelta(days=1)
    assert not Attempt.objects.exists()


def test_many_successes_keep_their_own_results_and_starts(
    database: Database, options: Options
) -> None:
    for _ in range(400):
        make_job()
    claims = claim(database, limit=400)
    now = time.monotonic()
    results = [None if number % 3 else str(number) for number in range(400)]
    starts = [None if number == 7 else now - number for number in range(400)]
    lost, *ours = claims
    Job.objects.filter(pk=lost.id).update(lease_token=2)
    # Claimed long ago: a handler is not called before its job is claimed.
    early = timezone.now() - timedelta(hours=1)
    endings = [
        Ending(
            claim=claimed._replace(claimed_at=early),
            outcome=Succeeded(results[number]),
            started=starts[number],
        )
        for number, claimed in enumerate(claims)
    ]

    report = finish_attempts(database, endings, worker_id=WORKER, options=options)

    assert {ending.claim.id for ending in report.done} == {job.id for job in ours}
    assert [ending.claim.id for ending in report.lost] == [lost.id]
    assert Job.objects.get(pk=lost.id).status == "running"
    rows = Job.objects.in_bulk([claimed.id for claimed in ours])
    for number, claimed in enumerate(claims):
        if claimed is lost:
            continue
        job = rows[claimed.id]
        assert job.status == "succeeded"
        assert job.result == (None if number % 3 else number)
        if number == 7:
            assert job.started_at is None
        else:
            ago = (job.finished_at - job.started_at).total_seconds()
            # And what has passed since `now`, on however slow a machine.
            assert number <= ago < number + 60


def test_a_success_after_a_failure_is_an_attempt_of_its_own(
    database: Database, options: Options
) -> None:
    job = make_job()
    finish(database, claim_one(database), replace(RETRIED, delay=timedelta()), options)

    finish(database, claim_one(database), Succeeded(), options, started=0.0)

    job.refresh_from_db()
    assert (job.status, job.attempts, job.error) == ("succeeded", 2, "")
    attempts = Attempt.objects.filter(job_id=job.pk).order_by("lease_token")
    outcomes = [(attempt.number, attempt.outcome) for attempt in attempts]
    assert outcomes == [(1, "failed"), (2, "succeeded")]


def test_a_retry_waits_for_its_time_and_keeps_the_key(
    database: Database, options: Options
) -> None:
    job = make_job(unique_key="k")
    claimed = claim_one(database)

    finish(database, claimed, RETRIED, options, started=0.0)

    job.refresh_from_db()
    [attempt] = Attempt.objects.filter(job_id=job.pk)
    assert (job.status, job.attempts, job.unique_key) == ("scheduled", 1, "k")
    assert job.error == "Oops: it broke"
    assert abs(job.run_at - attempt.finished_at - timedelta(seconds=60)) < timedelta(
        milliseconds=1
    )
    assert (attempt.outcome, attempt.number, attempt.worker_id) == ("failed", 1, WORKER)
    assert (attempt.exception_class, attempt.message) == ("app.Oops", "it broke")
    assert attempt.traceback == "Traceback…"


def test_a_retry_without_delay_is_pending_at_once(
    database: Database, options: Options
) -> None:
    job = make_job()

    report = finish(
        database, claim_one(database), replace(RETRIED, delay=timedelta()), options
    )

    job.refresh_from_db()
    assert job.status == "pending"
    assert report.pending == {"default": job.rank}


def test_a_snooze_gives_the_attempt_back(database: Database, options: Options) -> None:
    job = make_job()

    finish(database, claim_one(database), SNOOZED, options, started=0.0)

    job.refresh_from_db()
    assert (job.status, job.attempts, job.lease_token) == ("scheduled", 0, 1)
    assert (job.given_back, Attempt.objects.get().outcome) == (0, "snoozed")


def test_database_trouble_gives_the_attempt_back_and_is_counted(
    database: Database, options: Options
) -> None:
    job = make_job()

    finish(database, claim_one(database), replace(RELEASED, is_trouble=True), options)

    job.refresh_from_db()
    assert (job.status, job.attempts, job.given_back) == ("pending", 0, 1)


def test_a_released_job_is_pending_and_keeps_its_rank(
    database: Database, options: Options
) -> None:
    job = make_job(priority=1, rank=1)

    report = finish(database, claim_one(database), RELEASED, options)

    job.refresh_from_db()
    assert (job.status, job.attempts, job.rank) == ("pending", 0, 1)
    assert report.pending == {"default": 1}


@pytest.mark.parametrize(
    "outcome",
    [
        GivenBack(label=AttemptOutcome.RELEASED, delay=SECOND, is_trouble=True),
        GivenBack(label=AttemptOutcome.UNKNOWN_HANDLER, delay=SECOND),
        Lost(failure=FAILURE, delay=SECOND),
    ],
    ids=["trouble", "unknown", "lost"],
)
def test_a_job_given_back_for_later_keeps_its_rank_when_promoted(
    database: Database, options: Options, outcome: Outcome
) -> None:
    job = make_job(rank=5)
    finish(database, claim_one(database), outcome, options)

    later = timezone.now() + 2 * SECOND
    [promoted] = promote_jobs(database, limit=9, aging=options.aging, now=later)

    assert (promoted.id, promoted.rank) == (job.pk, 5)


@pytest.mark.parametrize(
    "outcome", [RETRIED, SNOOZED, CRASHED], ids=["retried", "snoozed", "crashed"]
)
def test_a_job_that_waits_by_its_own_doing_gets_a_new_rank(
    database: Database, options: Options, outcome: Outcome
) -> None:
    make_job(rank=5)
    finish(database, claim_one(database), outcome, options)

    later = timezone.now() + 120 * SECOND
    [promoted] = promote_jobs(database, limit=9, aging=options.aging, now=later)

    assert promoted.rank == round(later.timestamp() * 1_000_000)


def test_a_snooze_forgets_earlier_losses_and_troubles(
    database: Database, options: Options
) -> None:
    job = make_job(lost=2, given_back=7)

    finish(database, claim_one(database), SNOOZED, options)

    job.refresh_from_db()
    assert (job.status, job.lost, job.given_back) == ("scheduled", 0, 0)


def test_a_failure_or_a_deferral_forgets_no_loss(
    database: Database, options: Options
) -> None:
    deferred = GivenBack(label=AttemptOutcome.DEFERRED, delay=SECOND)
    for outcome in (RETRIED, deferred):
        job = make_job(lost=2, given_back=7)

        finish(database, claim_one(database), outcome, options)

        job.refresh_from_db()
        assert (job.lost, job.given_back) == (2, 7)


def test_an_unknown_handler_is_remembered_since_when(
    database: Database, options: Options
) -> None:
    job = make_job()
    unknown = GivenBack(
        label=AttemptOutcome.UNKNOWN_HANDLER, delay=timedelta(), failure=FAILURE
    )

    finish(database, claim_one(database), unknown, options)
    job.refresh_from_db()
    since = job.unknown_since
    finish(database, claim_one(database), unknown, options)
    job.refresh_from_db()

    assert since is not None
    assert (job.unknown_since, job.attempts) == (since, 0)


def test_a_cancelled_attempt_ends_the_job(database: Database, options: Options) -> None:
    job = make_job(unique_key="k")

    finish(database, claim_one(database), Cancelled("not needed"), options)

    job.refresh_from_db()
    assert (job.status, job.error, job.unique_key) == ("cancelled", "not needed", None)
    assert job.prune_at == job.finished_at + timedelta(days=7)
    assert Attempt.objects.get().outcome == "cancelled"


def test_a_death_moves_the_whole_job_to_the_dead_letters(
    database: Database, options: Options
) -> None:
    job = make_job(
        queue="default",
        payload={"x": 5},
        priority=7,
        unique_key="k",
        tags=["a"],
        meta={"b": 1},
        max_attempts=4,
        timeout=timedelta(seconds=9),
        backoff=[1.0],
        lost=2,
    )

    finish(database, claim_one(database), DIED, options, started=0.0)

    dead = DeadJob.objects.get(pk=job.pk)
    assert not Job.objects.filter(pk=job.pk).exists()
    assert (dead.reason, dead.error, dead.fingerprint) == (
        "exception",
        "Oops: it broke",
        "abc",
    )
    for column in ("job_type", "queue", "payload", "args", "priority", "created_at"):
        assert getattr(dead, column) == getattr(job, column), column
    for column in ("unique_key", "tags", "meta", "max_attempts", "timeout", "backoff"):
        assert getattr(dead, column) == getattr(job, column), column
    assert (dead.attempts, dead.lost, dead.lease_token) == (1, 2, 1)
    assert dead.died_at >= dead.started_at
    assert Attempt.objects.get(job_id=job.pk).outcome == "failed"


def test_a_crash_beside_others_gives_the_attempt_back_and_makes_a_suspect(
    database: Database, options: Options
) -> None:
    job = make_job(unique_key="k", rank=1)

    report = finish(database, claim_one(database), CRASHED, options, started=0.0)

    job.refresh_from_db()
    [attempt] = Attempt.objects.filter(job_id=job.pk)
    assert (job.status, job.unique_key, job.error) == ("scheduled", "k", FAILURE.short)
    assert (job.attempts, job.crashes, job.isolate) == (0, 1, True)
    assert job.run_at - attempt.finished_at == timedelta(seconds=2)
    assert (attempt.outcome, attempt.number) == ("crashed", 1)
    assert (attempt.exception_class, attempt.message) == ("app.Oops", "it broke")
    assert report.pending == {}


def test_a_crash_while_alone_costs_the_attempt_too(
    database: Database, options: Options
) -> None:
    job = make_job(attempts=1, lease_token=1, crashes=1, isolate=True)

    finish(database, claim_one(database), replace(CRASHED, is_alone=True), options)

    job.refresh_from_db()
    assert (job.status, job.attempts) == ("scheduled", 2)
    assert (job.crashes, job.isolate) == (2, True)


def test_a_job_that_died_of_its_crashes_stays_a_suspect(
    database: Database, options: Options
) -> None:
    job = make_job(lease_token=4, crashes=2, isolate=True)

    finish(database, claim_one(database), CRASHED_FOR_GOOD, options)

    dead = DeadJob.objects.get(pk=job.pk)
    assert (dead.reason, dead.crashes, dead.isolate) == ("crashed", 3, True)
    assert Attempt.objects.get(job_id=job.pk).outcome == "crashed"


@pytest.mark.parametrize(
    "outcome",
    [Succeeded("1"), RETRIED, SNOOZED, Cancelled("no")],
    ids=lambda o: type(o).__name__,
)
def test_any_other_end_clears_a_suspect(
    database: Database, options: Options, outcome: Outcome
) -> None:
    job = make_job(lease_token=1, crashes=2, isolate=True)

    finish(database, claim_one(database), outcome, options)

    job.refresh_from_db()
    assert (job.crashes, job.isolate) == (0, False)


def test_a_suspect_that_dies_of_something_else_is_cleared(
    database: Database, options: Options
) -> None:
    job = make_job(lease_token=1, crashes=2, isolate=True)

    finish(database, claim_one(database), DIED, options)

    dead = DeadJob.objects.get(pk=job.pk)
    assert (dead.crashes, dead.isolate) == (0, False)


@pytest.mark.parametrize("outcome", [RELEASED, UNKNOWN], ids=["released", "unknown"])
@pytest.mark.parametrize(("crashes", "isolate"), [(2, True), (0, False)])
def test_who_may_not_have_run_is_neither_cleared_nor_suspected(
    database: Database, options: Options, outcome: Outcome, crashes: int, isolate: bool
) -> None:
    job = make_job(lease_token=1, crashes=crashes, isolate=isolate)

    finish(database, claim_one(database), outcome, options)

    job.refresh_from_db()
    assert (job.crashes, job.isolate) == (crashes, isolate)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda o: type(o).__name__)
def test_an_end_by_the_supervisor_raises_the_token_and_refuses_the_attempts_own(
    database: Database, options: Options, outcome: Outcome
) -> None:
    job = make_job(lease_token=3)
    claimed = claim_one(database)

    finish(database, claimed, outcome, options, is_taken=True)

    kept = DeadJob if isinstance(outcome, Died) else Job
    assert kept.objects.get(pk=job.pk).lease_token == 5
    assert Attempt.objects.get(job_id=job.pk).lease_token == 4
    late = finish(database, claimed, Succeeded(), options)
    assert [ending.claim for ending in late.lost] == [claimed]
    assert kept.objects.get(pk=job.pk).lease_token == 5
    assert Attempt.objects.count() == 1


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda o: type(o).__name__)
def test_an_end_by_the_supervisor_that_is_written_twice_counts_once(
    database: Database, options: Options, outcome: Outcome
) -> None:
    job = make_job(lease_token=3)
    claimed = claim_one(database)
    finish(database, claimed, outcome, options, is_taken=True)

    report = finish(database, claimed, outcome, options, is_taken=True)

    assert len(report.done) == 1
    kept = DeadJob if isinstance(outcome, Died) else Job
    assert kept.objects.get(pk=job.pk).lease_token == 5
    assert Attempt.objects.count() == 1


@pytest.mark.parametrize("own", OUTCOMES, ids=lambda o: type(o).__name__)
@pytest.mark.parametrize("taken", [CRASHED, CRASHED_FOR_GOOD], ids=["crash", "death"])
def test_the_supervisor_comes_too_late_for_an_attempt_that_ended_by_itself(
    database: Database, options: Options, own: Outcome, taken: Outcome
) -> None:
    job = make_job()
    claimed = claim_one(database)
    finish(database, claimed, own, options)

    report = finish(database, claimed, taken, options, is_taken=True)

    assert [ending.claim for ending in report.lost] == [claimed]
    kept = DeadJob if isinstance(own, Died) else Job
    assert kept.objects.get(pk=job.pk).lease_token == 1
    assert Attempt.objects.count() == (0 if isinstance(own, Succeeded) else 1)


def test_the_supervisor_comes_too_late_for_an_attempt_that_was_rescued(
    database: Database, options: Options
) -> None:
    job = make_job()
    claimed = claim_one(database)
    # No heartbeat at all: the owner is gone.
    assert len(rescue_jobs(database, options=options).jobs) == 1

    report = finish(database, claimed, CRASHED, options, is_taken=True)

    job.refresh_from_db()
    assert [ending.claim for ending in report.lost] == [claimed]
    assert (job.lost, job.crashes, job.isolate) == (1, 0, False)


def test_the_supervisor_comes_too_late_for_a_job_that_is_gone(
    database: Database, options: Options
) -> None:
    job = make_job()
    claimed = claim_one(database)
    Job.objects.filter(pk=job.pk).delete()

    report = finish(database, claimed, CRASHED, options, is_taken=True)

    assert [ending.claim for ending in report.lost] == [claimed]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda o: type(o).__name__)
def test_the_late_write_of_a_rescued_attempt_is_refused(
    database: Database, options: Options, outcome: Outcome
) -> None:
    job = make_job()
    claimed = claim_one(database)
    Job.objects.filter(pk=job.pk).update(lease_token=2, worker_id=uuid4())

    report = finish(database, claimed, outcome, options, started=0.0)

    job.refresh_from_db()
    assert [ending.claim for ending in report.lost] == [claimed]
    assert (job.status, job.lease_token, job.error) == ("running", 2, "")
    assert not Attempt.objects.exists()
    assert not DeadJob.objects.exists()


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda o: type(o).__name__)
def test_the_late_write_of_an_attempt_that_its_worker_claimed_again_is_refused(
    database: Database, options: Options, outcome: Outcome
) -> None:
    # Only the token tells the two attempts apart.
    job = make_job()
    claimed = claim_one(database)
    Job.objects.filter(pk=job.pk).update(lease_token=2)

    report = finish(database, claimed, outcome, options, started=0.0)

    job.refresh_from_db()
    assert [ending.claim for ending in report.lost] == [claimed]
    assert (job.status, job.worker_id, job.error) == ("running", WORKER, "")


@pytest.mark.parametrize("change", [{"lease_token": 2}, {"worker_id": uuid4()}])
def test_retention_0_deletes_nothing_that_was_taken_away(
    database: Database, options: Options, change: dict[str, Any]
) -> None:
    retention = {**options.retention, "succeeded": Retention(age=timedelta())}
    job = make_job()
    claimed = claim_one(database)
    Job.objects.filter(pk=job.pk).update(**change)

    report = finish(
        database, claimed, Succeeded(), replace(options, retention=retention)
    )

    assert [ending.claim for ending in report.lost] == [claimed]
    assert Job.objects.get(pk=job.pk).status == "running"


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda o: type(o).__name__)
def test_a_token_shared_after_a_failover_is_refused_by_the_worker_id(
    database: Database, options: Options, outcome: Outcome
) -> None:
    job = make_job()
    claimed = claim_one(database)
    Job.objects.filter(pk=job.pk).update(worker_id=uuid4())

    report = finish(database, claimed, outcome, options)

    assert [ending.claim for ending in report.lost] == [claimed]
    job.refresh_from_db()
    assert job.status == "running"


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda o: type(o).__name__)
def test_an_end_written_twice_counts_once(
    database: Database, options: Options, outcome: Outcome
) -> None:
    make_job()
    claimed = claim_one(database)
    finish(database, claimed, outcome, options)

    report = finish(database, claimed, outcome, options)

    assert len(report.done) == 1
    assert Attempt.objects.count() == (0 if isinstance(outcome, Succeeded) else 1)


@pytest.mark.postgresql
def test_one_refused_result_spoils_that_job_only(
    database: Database, options: Options
) -> None:
    for _ in range(20):
        make_job()
    claims = claim(database, limit=20)
    # jsonb has no NUL: our own check would have refused it long before.
    endings = [
        Ending(claim=c, outcome=Succeeded('"\\u0000"' if n == 11 else str(n)))
        for n, c in enumerate(claims)
    ]

    report = finish_attempts(database, endings, worker_id=WORKER, options=options)

    assert len(report.done) == 20
    jobs = {job.pk: job for job in Job.objects.all()}
    results = [jobs[c.id].result for c in claims]
    assert results == [n if n != 11 else None for n in range(20)]
    assert {job.status for job in jobs.values()} == {"succeeded"}
    assert jobs[claims[11].id].error == "The database refused the result."


@pytest.mark.parametrize("outcome", [CRASHED, CRASHED_FOR_GOOD], ids=["crash", "dead"])
@pytest.mark.postgresql
def test_a_crash_whose_text_is_refused_is_counted_all_the_same(
    database: Database, options: Options, outcome: Any
) -> None:
    job = make_job()
    # Longer than its column: nothing of ours has such a name.
    refused = replace(outcome, failure=replace(FAILURE, exception_class="x" * 201))

    finish(database, claim_one(database), refused, options, is_taken=True)

    kept: Any = (DeadJob if isinstance(outcome, Died) else Job).objects.get(pk=job.pk)
    assert (kept.crashes, kept.isolate, kept.lease_token) == (1, True, 2)
    assert kept.error == "The error could not be stored."


def test_retention_0_leaves_nothing_of_a_success(
    database: Database, options: Options
) -> None:
    retention = {**options.retention, "succeeded": Retention(age=timedelta())}
    job = make_job()

    report = finish(
        database,
        claim_one(database),
        Succeeded("1"),
        replace(options, retention=retention),
    )

    assert len(report.done) == 1
    assert not Job.objects.filter(pk=job.pk).exists()


def test_finish_in_transaction_refuses_a_lost_lease(
    database: Database, options: Options
) -> None:
    job = make_job()
    claimed = claim_one(database)
    Job.objects.filter(pk=job.pk).update(lease_token=2)

    with pytest.raises(LeaseLost):
        finish_in_transaction(
            database,
            Ending(claim=claimed, outcome=Succeeded()),
            worker_id=WORKER,
            options=options,
        )
