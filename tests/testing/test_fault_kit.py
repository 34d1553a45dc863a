"""faults(): kills, pauses and second deliveries at named points, and their seeds."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_jobqueue import DeadJob, Job, signals
from django_jobqueue.models import Attempt
from django_jobqueue.testing import (
    END,
    START,
    RanJobs,
    after,
    before,
    faults,
    run_jobs,
    travel,
)
from tests.testapp import jobs, rehearsed
from tests.testapp.models import Effect
from tests.testapp.rehearsed import charges, pay, pay_async, pay_atomically, pay_once

MOMENT = datetime(2040, 1, 1, tzinfo=UTC)
CHARGE = "tests.testapp.rehearsed.charge"


pytestmark = pytest.mark.usefixtures("database")


def effects() -> int:
    return Effect.objects.count()


@pytest.mark.parametrize(
    ("point", "charged", "noted"),
    [
        (START, 1, 1),
        (before(CHARGE), 1, 1),
        (after(CHARGE), 2, 1),
        (END, 2, 2),
    ],
)
def test_effects_before_a_kill_stay(point: Any, charged: int, noted: int) -> None:
    job = pay.enqueue(name="Ada")
    with faults() as fault:
        fault.kill(pay, at=point)
        ran = run_jobs(scheduled=True)

    assert ran.outcomes == ["crashed", "succeeded"]
    assert (len(charges), effects()) == (charged, noted)
    job.refresh_from_db()
    assert (job.status, job.attempts, job.lease_token) == ("succeeded", 2, 3)
    crash = Attempt.objects.get(job_id=job.pk, outcome="crashed")
    assert crash.exception_class == "WorkerCrashed"
    assert crash.message == (
        f"The process that ran this job and nothing else died: killed at {point} by "
        f"faults()."
    )


def test_a_killed_job_is_scheduled_like_after_a_crash() -> None:
    job = pay.enqueue(name="Ada")
    with faults() as fault:
        fault.kill(pay)
        [ran] = run_jobs()

    job.refresh_from_db()
    assert (job.status, job.crashes, job.isolate) == ("scheduled", 1, True)
    assert ran.delay is not None
    assert ran.error == job.error
    assert job.error.startswith("WorkerCrashed: The process that ran this job")


def test_a_kill_at_the_end_rolls_an_atomic_handler_back() -> None:
    pay_atomically.enqueue(name="Ada")
    with faults() as fault:
        fault.kill(pay_atomically, at=END)
        assert run_jobs().outcomes == ["crashed"]
        assert effects() == 0
        assert run_jobs(scheduled=True).outcomes == ["succeeded"]

    assert effects() == 1
    assert charges == ["Ada", "Ada"]


def test_a_job_killed_too_often_is_dead() -> None:
    pay.using(max_attempts=10).enqueue(name="Ada")
    with faults() as fault:
        fault.kill(pay, times=3)
        ran = run_jobs(scheduled=True)

    assert [each.is_dead for each in ran] == [False, False, True]
    assert DeadJob.objects.get().reason == "crashed"


def test_a_job_of_one_attempt_is_not_started_again() -> None:
    pay_once.enqueue(name="Ada")
    with faults() as fault:
        fault.kill(pay_once)
        assert run_jobs(scheduled=True)[0].is_dead
    pay_once.enqueue(name="Bob")
    with faults() as fault:
        fault.deliver_twice(pay_once)
        assert run_jobs(scheduled=True).outcomes == ["lost"]

    assert charges == ["Ada", "Bob"]
    reasons = DeadJob.objects.order_by("id").values_list("reason", flat=True)
    assert list(reasons) == ["crashed", "lost"]


def test_a_handler_that_catches_everything_is_killed_too() -> None:
    rehearsed.catch_everything.enqueue()
    with faults() as fault:
        fault.kill(rehearsed.catch_everything, at=after(CHARGE))
        assert run_jobs().outcomes == ["crashed"]


def test_a_second_delivery_runs_the_job_again_at_once() -> None:
    job = pay.enqueue(name="Ada")
    with faults() as fault:
        fault.deliver_twice(pay)
        ran = run_jobs()

    assert ran.outcomes == ["lost", "succeeded"]
    assert charges == ["Ada", "Ada"]
    assert effects() == 2
    job.refresh_from_db()
    # A lost attempt is given back.
    assert (job.status, job.attempts, job.lost) == ("succeeded", 1, 1)


def test_an_atomic_handler_delivered_twice_has_its_effects_once() -> None:
    pay_atomically.enqueue(name="Ada")
    with faults() as fault:
        fault.deliver_twice(pay_atomically)
        assert run_jobs().outcomes == ["lost", "succeeded"]

    assert charges == ["Ada", "Ada"]
    assert effects() == 1


def test_a_paused_attempt_has_lost_its_lease() -> None:
    received: list[Any] = []

    def on_lease_lost(job_id: Any, **kwargs: Any) -> None:
        received.append(job_id)

    job = pay.enqueue(name="Ada")
    signals.lease_lost.connect(on_lease_lost)
    try:
        with faults() as fault:
            fault.pause(pay, at=START)
            late, again = run_jobs()
    finally:
        signals.lease_lost.disconnect(on_lease_lost)

    assert (late.outcome, again.outcome) == ("lost", "succeeded")
    assert type(late.exception).__name__ == "LeaseLost"
    assert charges == ["Ada"]
    assert received == [job.pk]


@pytest.mark.parametrize("point", [after(CHARGE), END])
def test_the_end_of_a_paused_attempt_is_refused(point: Any) -> None:
    job = pay.enqueue(name="Ada")
    with faults() as fault:
        fault.pause(pay, at=point)
        assert run_jobs().outcomes == ["lost", "succeeded"]

    assert effects() == 2
    job.refresh_from_db()
    assert (job.status, job.lost) == ("succeeded", 1)


@pytest.mark.parametrize("point", [START, before(CHARGE), END])
def test_a_paused_atomic_handler_is_rolled_back(point: Any) -> None:
    job = pay_atomically.enqueue(name="Ada")
    with faults() as fault:
        fault.pause(pay_atomically, at=point)
        assert run_jobs().outcomes == ["lost", "succeeded"]

    assert effects() == 1
    job.refresh_from_db()
    assert (job.status, job.lost) == ("succeeded", 1)


@pytest.mark.parametrize(
    "point", [START, after("tests.testapp.rehearsed.charge_async"), END]
)
def test_faults_strike_async_handlers(point: Any) -> None:
    pay_async.enqueue(name="Ada")
    with faults() as fault:
        fault.kill(pay_async, at=point)
        fault.pause(pay_async, at=point)
        ran = run_jobs(scheduled=True)

    assert ran.outcomes == ["crashed", "lost", "succeeded"]


def test_a_pause_in_a_sync_call_on_the_event_loop_loses_the_lease() -> None:
    pay_async.enqueue(name="Ada")
    with faults() as fault:
        fault.pause(pay_async, at=before(CHARGE))
        assert run_jobs().outcomes == ["lost", "succeeded"]


def test_faults_strike_only_the_named_handler() -> None:
    pay.enqueue(name="Ada")
    jobs.add.enqueue(x=1)
    with faults() as fault:
        fault.deliver_twice(pay)
        rehearsed.charge("outside of any job")
        assert run_jobs().of(jobs.add).outcomes == ["succeeded"]


def test_patches_are_removed_after_the_block() -> None:
    original = rehearsed.charge
    with faults() as fault:
        fault.at_random(pay, rate=1, points=[after(CHARGE)])
        assert rehearsed.charge is not original

    assert rehearsed.charge is original
    pay.enqueue(name="Ada")
    assert run_jobs().outcomes == ["succeeded"]


def run_at_random(seed: int) -> tuple[list[str], list[str]]:
    Job.objects.all().delete()
    for number in range(5):
        pay.using(max_attempts=10).enqueue(name=str(number))
    with faults(seed=seed) as fault:
        fault.at_random(pay, rate=0.7, points=[START, after(CHARGE), END])
        ran: RanJobs = run_jobs(scheduled=True, raise_errors=False)
    assert Job.objects.filter(status="succeeded").count() == 5
    return ran.outcomes, fault.struck


def test_a_seed_repeats_the_same_faults() -> None:
    first = run_at_random(7)

    assert len(first[1]) > 2
    assert run_at_random(7) == first
    assert run_at_random(8) != first


def replay(seed: int) -> list[tuple[int, int, str, timedelta | None]]:
    """Run five jobs; return (job, attempt, outcome, delay) of each attempt."""
    Job.objects.all().delete()
    ids = [pay.using(max_attempts=10).enqueue(name=str(n)).pk for n in range(5)]
    with faults(seed=seed) as fault:
        fault.at_random(pay, rate=0.7, points=[START, after(CHARGE), END])
        ran = run_jobs(raise_errors=False)
        later = run_jobs(scheduled=True, raise_errors=False)
    return [
        (ids.index(each.job_id), each.attempt, each.outcome, each.delay)
        for each in (*ran, *later)
    ]


def test_a_seed_repeats_the_same_order_and_delays() -> None:
    random.seed(1)
    first = replay(7)
    random.seed(2)

    assert replay(7) == first
    assert {delay for *_, delay in first} != {None}


def test_a_seed_does_not_change_the_global_random_numbers() -> None:
    random.seed(1)
    expected = random.random()
    random.seed(1)
    pay.enqueue(name="Ada")
    with faults(seed=7) as fault:
        fault.kill(pay)
        run_jobs(scheduled=True)
    assert random.random() == expected


def test_the_clock_stands_still_inside_the_block() -> None:
    with faults():
        assert pay.enqueue(name="Ada").created_at == pay.enqueue(name="Bob").created_at
    first, second = pay.enqueue(name="Ada"), pay.enqueue(name="Bob")
    assert first.created_at < second.created_at


def test_a_clock_that_the_test_has_set_is_kept() -> None:
    with travel(MOMENT) as clock, faults():
        clock.move(hours=1)
        assert pay.enqueue(name="Ada").created_at == MOMENT + timedelta(hours=1)


def test_a_failing_block_names_its_seed_and_what_struck() -> None:
    def pay_twice() -> None:
        with faults(seed=7) as fault:
            fault.kill(pay, at=after(CHARGE))
            pay.enqueue(name="Ada")
            run_jobs(scheduled=True)
            assert charges == ["Ada"]

    with pytest.raises(AssertionError) as caught:
        pay_twice()
    assert caught.value.__notes__ == [
        "faults(seed=7) struck:\n"
        "  the kill of testapp.pay at after tests.testapp.rehearsed.charge, attempt 1"
    ]


def test_a_failing_block_without_a_fault_names_its_seed() -> None:
    with pytest.raises(ZeroDivisionError) as caught, faults(seed=3):
        raise ZeroDivisionError
    assert caught.value.__notes__ == ["faults(seed=3) struck: nothing"]


def test_a_fault_that_has_not_struck_fails_the_block() -> None:
    def expect_too_much() -> None:
        with faults(seed=7) as fault:
            fault.kill(pay, times=2)
            pay.enqueue(name="Ada")
            run_jobs()

    with pytest.raises(AssertionError) as caught:
        expect_too_much()
    assert str(caught.value) == (
        "the kill of testapp.pay at end has struck 1 times, not 2. Did run_jobs() run "
        "inside the block, with scheduled=True for later attempts?\n"
        "faults(seed=7) struck:\n"
        "  the kill of testapp.pay at end, attempt 1"
    )


def test_a_value_that_is_not_a_point_is_refused() -> None:
    with faults() as fault, pytest.raises(TypeError) as caught:
        fault.kill(pay, at="end")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "at takes START, END, before('path') or after('path'), not 'end'."
    )


def test_an_unknown_path_is_an_error() -> None:
    with faults() as fault, pytest.raises(AttributeError, match="chrge"):
        fault.kill(pay, at=after("tests.testapp.rehearsed.chrge"))
