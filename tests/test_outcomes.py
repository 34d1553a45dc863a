"""judge() and backoff: what becomes of a job whose attempt raised."""

import random
from datetime import timedelta
from typing import Any

import pytest
from django.db import (
    OperationalError,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from django_jobqueue import (
    Cancel,
    Discard,
    JobTimeout,
    RateLimited,
    Snooze,
    exponential,
    linear,
)
from django_jobqueue.backoff import Backoff, load_backoff, read_backoff
from django_jobqueue.exceptions import InvalidOption, JobCancelled
from django_jobqueue.outcomes import (
    MAX_GIVEN_BACK,
    Cancelled,
    Crashed,
    Died,
    GivenBack,
    Outcome,
    Retried,
    RetryPolicy,
    choose_delay,
    judge,
    judge_crash,
    judge_overrun,
)
from django_jobqueue.states import AttemptOutcome, DeadReason
from tests.database_errors import LOST, from_driver

SECOND = timedelta(seconds=1)


def policy(**changes: Any) -> RetryPolicy:
    return RetryPolicy(**{"max_attempts": 3, "backoff": read_backoff(5), **changes})


def judge_first(error: BaseException, **changes: Any) -> Outcome:
    return judge(error, policy(**changes), attempt=1)


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (5000, 300)]
)
def test_exponential_doubles_up_to_its_cap(attempt: int, seconds: int) -> None:
    assert exponential().delay(attempt, jitter=1) == seconds * SECOND


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 10), (2, 20), (3, 25), (9**9, 25)]
)
def test_linear_grows_by_its_step_up_to_its_cap(attempt: int, seconds: int) -> None:
    assert linear(10, 25).delay(attempt, jitter=1) == seconds * SECOND


@pytest.mark.parametrize("backoff", [exponential(2, 60), linear(2, 60)])
@settings(deadline=None)
@given(attempt=st.integers(1, 40), jitter=st.floats(0, 1))
def test_jitter_is_between_half_and_all_of_the_delay(
    backoff: Backoff, attempt: int, jitter: float
) -> None:
    whole = backoff.delay(attempt, jitter=1)
    assert whole / 2 <= backoff.delay(attempt, jitter=jitter) <= whole
    assert backoff.delay(attempt, jitter=0) == whole / 2


def test_jitter_of_a_judgement_is_drawn_anew_each_time() -> None:
    delays = {
        judge_first(ValueError(), backoff=exponential(100, 100)).delay  # type: ignore[union-attr]
        for _ in range(50)
    }
    assert len(delays) > 40
    assert all(50 * SECOND <= delay <= 100 * SECOND for delay in delays if delay)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 5), (3, 30), (4, 30)])
def test_steps_are_taken_in_order_and_the_last_repeats(
    attempt: int, seconds: int
) -> None:
    backoff = read_backoff([1, timedelta(seconds=5), 30.0])
    assert isinstance(backoff, Backoff)
    assert backoff.delay(attempt, jitter=random.random()) == seconds * SECOND


@pytest.mark.parametrize("value", [7, 7.0, timedelta(seconds=7)])
def test_single_delay_has_no_jitter(value: Any) -> None:
    backoff = read_backoff(value)
    assert isinstance(backoff, Backoff)
    assert {backoff.delay(n, jitter=n / 9) for n in range(1, 9)} == {7 * SECOND}


durations = st.integers(0, 10**6) | st.timedeltas(timedelta(), timedelta(days=900))
backoffs = st.one_of(
    st.builds(exponential, durations, durations),
    st.builds(linear, durations, durations),
    st.lists(durations, min_size=1, max_size=5).map(read_backoff),
)


@settings(deadline=None)
@given(backoffs)
def test_stored_backoff_comes_back_as_it_was(backoff: Backoff) -> None:
    assert load_backoff(backoff.dump()) == backoff


@pytest.mark.parametrize(
    "value", [-1, "1", True, None, [], [1, -1], float("nan"), 1e12]
)
def test_impossible_backoff_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^backoff takes seconds, a timedelta"):
        read_backoff(value)


@pytest.mark.parametrize("make", [exponential, linear])
def test_impossible_step_of_a_named_backoff_is_refused(make: Any) -> None:
    with pytest.raises(InvalidOption):
        make(-1)
    with pytest.raises(InvalidOption):
        make(1, "many")


def test_callable_is_asked_with_attempt_and_exception() -> None:
    error = ValueError()
    asked = []

    def backoff(attempt: int, error: BaseException) -> timedelta:
        asked.append((attempt, error))
        return 9 * SECOND

    assert choose_delay(error, policy(backoff=backoff), attempt=2) == 9 * SECOND
    assert asked == [(2, error)]


def test_callable_that_answers_none_means_at_once() -> None:
    answer = choose_delay(
        ValueError(), policy(backoff=lambda attempt, error: None), attempt=1
    )
    assert answer == timedelta()


@pytest.mark.parametrize("answer", ["5", -5, float("nan"), object(), True])
def test_callable_that_answers_nonsense_is_passed_over(answer: Any) -> None:
    delay = choose_delay(
        ValueError(), policy(backoff=lambda attempt, error: answer), attempt=3
    )
    assert 2 * SECOND <= delay <= 4 * SECOND


@pytest.mark.parametrize("cause", [ZeroDivisionError, SystemExit])
def test_callable_that_raises_is_passed_over(cause: type[BaseException]) -> None:
    def backoff(attempt: int, error: BaseException) -> int:
        raise cause

    delay = choose_delay(ValueError(), policy(backoff=backoff), attempt=1)
    assert SECOND / 2 <= delay <= SECOND


def test_failed_attempt_is_retried_after_the_backoff() -> None:
    outcome = judge_first(ValueError("no"))
    assert isinstance(outcome, Retried)
    assert outcome.delay == 5 * SECOND
    assert outcome.label == AttemptOutcome.FAILED
    assert outcome.failure.short == "ValueError: no"


def test_last_attempt_ends_in_the_dead_letters() -> None:
    outcome = judge(ValueError("no"), policy(max_attempts=3), attempt=3)
    assert isinstance(outcome, Died)
    assert (outcome.reason, outcome.label) == (
        DeadReason.EXCEPTION,
        AttemptOutcome.FAILED,
    )
    assert isinstance(judge(ValueError(), policy(max_attempts=3), attempt=2), Retried)


def test_max_attempts_of_one_means_never_again() -> None:
    assert isinstance(judge_first(ValueError(), max_attempts=1), Died)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_whatever_is_raised_is_a_failed_attempt(error: BaseException) -> None:
    assert isinstance(judge_first(error), Retried)


@pytest.mark.parametrize("claimed", [Snooze, Cancel, Discard, JobTimeout])
def test_an_error_is_judged_by_what_it_is_and_not_by_what_it_says(claimed: Any) -> None:
    class Pretender(Exception):
        @property
        def __class__(self) -> Any:
            return claimed

    outcome = judge_first(Pretender("boo"), retry_on={Pretender: None})
    assert isinstance(outcome, Retried)
    assert outcome.label == AttemptOutcome.FAILED
    assert outcome.failure.message == "boo"


def test_timeout_is_retried_and_then_dead_by_timeout() -> None:
    first = judge_first(JobTimeout())
    assert isinstance(first, Retried)
    assert first.label == AttemptOutcome.TIMEOUT
    last = judge(JobTimeout(), policy(), attempt=3)
    assert isinstance(last, Died)
    assert (last.reason, last.label) == (DeadReason.TIMEOUT, AttemptOutcome.TIMEOUT)


def judge_death(cause: str = "killed by SIGSEGV", **changes: Any) -> Crashed | Died:
    facts = {
        "crashes": 0,
        "attempt": 1,
        "max_attempts": 3,
        "max_crashes": 3,
        "is_alone": False,
        "job_type": "mail",
        **changes,
    }
    return judge_crash(cause, **facts)


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_crash_is_tried_again_after_a_while(is_alone: bool) -> None:
    outcome = judge_death(is_alone=is_alone)
    assert isinstance(outcome, Crashed)
    assert outcome.is_alone == is_alone
    assert SECOND / 2 <= outcome.delay <= SECOND


@pytest.mark.parametrize(
    ("crashes", "seconds"), [(0, 1), (1, 2), (4, 16), (8, 256), (9, 300), (5000, 300)]
)
def test_the_wait_after_a_crash_doubles_up_to_five_minutes(
    crashes: int, seconds: int
) -> None:
    delays = set()
    for _ in range(50):
        outcome = judge_death(crashes=crashes, max_crashes=9999)
        assert isinstance(outcome, Crashed)
        delays.add(outcome.delay)
    assert len(delays) > 40
    assert all(seconds * SECOND / 2 <= delay <= seconds * SECOND for delay in delays)


def assert_dead_by_crash(outcome: Crashed | Died) -> None:
    assert isinstance(outcome, Died)
    assert (outcome.reason, outcome.label) == (
        DeadReason.CRASHED,
        AttemptOutcome.CRASHED,
    )
    assert outcome.crash == 1


@pytest.mark.parametrize("is_alone", [False, True])
def test_the_third_crash_is_the_last(is_alone: bool) -> None:
    facts = {"is_alone": is_alone, "max_attempts": 99}
    assert isinstance(judge_death(crashes=1, **facts), Crashed)
    assert_dead_by_crash(judge_death(crashes=2, **facts))
    assert_dead_by_crash(judge_death(crashes=0, max_crashes=1, **facts))


@pytest.mark.parametrize("is_alone", [False, True])
def test_one_attempt_is_a_promise_that_a_crash_ends(is_alone: bool) -> None:
    assert_dead_by_crash(judge_death(max_attempts=1, is_alone=is_alone))


def test_a_crash_beside_others_does_not_use_up_the_last_attempt() -> None:
    assert isinstance(judge_death(attempt=3, max_attempts=3), Crashed)


def test_a_crash_while_alone_uses_up_the_last_attempt() -> None:
    assert isinstance(judge_death(attempt=2, is_alone=True), Crashed)
    assert_dead_by_crash(judge_death(attempt=3, is_alone=True))


@pytest.mark.parametrize("cause", ["killed by SIGSEGV", "exited with code 3"])
def test_a_crash_says_how_the_process_died_and_who_else_was_in_it(cause: str) -> None:
    beside, alone = judge_death(cause), judge_death(cause, is_alone=True)
    assert beside.failure.exception_class == "WorkerCrashed"
    assert beside.failure.message == f"The process that ran this job died: {cause}."
    assert alone.failure.short == (
        f"WorkerCrashed: The process that ran this job and nothing else died: {cause}."
    )


def test_crashes_of_one_kind_share_a_fingerprint() -> None:
    def fingerprint(cause: str = "killed by SIGSEGV", **changes: Any) -> str:
        return judge_death(cause, **changes).failure.fingerprint

    assert len(fingerprint()) == 16
    assert fingerprint() == fingerprint(is_alone=True) == fingerprint(crashes=2)
    kinds = {
        fingerprint(),
        fingerprint("killed by SIGKILL"),
        fingerprint(job_type="pdf"),
    }
    assert len(kinds) == 3


def judge_stuck(**changes: Any) -> Retried | Died:
    facts = {
        "attempt": 1,
        "max_attempts": 3,
        "delay": 7 * SECOND,
        "timeout": 90 * SECOND,
        "grace": 5 * SECOND,
        "job_type": "mail",
        **changes,
    }
    return judge_overrun(**facts)


def test_an_attempt_that_ignored_its_timeout_is_retried_as_a_timeout() -> None:
    outcome = judge_stuck(attempt=2)
    assert isinstance(outcome, Retried)
    assert (outcome.delay, outcome.label) == (7 * SECOND, AttemptOutcome.TIMEOUT)


@pytest.mark.parametrize(("attempt", "max_attempts"), [(3, 3), (1, 1)])
def test_the_last_attempt_that_ignored_its_timeout_is_dead_by_timeout(
    attempt: int, max_attempts: int
) -> None:
    outcome = judge_stuck(attempt=attempt, max_attempts=max_attempts)
    assert isinstance(outcome, Died)
    assert (outcome.reason, outcome.label) == (
        DeadReason.TIMEOUT,
        AttemptOutcome.TIMEOUT,
    )
    assert outcome.crash == 0


def test_an_overrun_without_a_known_backoff_takes_the_usual_one() -> None:
    outcome = judge_stuck(attempt=2, delay=None)
    assert isinstance(outcome, Retried)
    assert SECOND <= outcome.delay <= 2 * SECOND


def test_an_overrun_is_recorded_under_the_class_of_a_soft_timeout() -> None:
    soft = judge_first(JobTimeout())
    assert isinstance(soft, Retried)
    failure = judge_stuck().failure
    assert failure.exception_class == soft.failure.exception_class
    assert failure.message == (
        "The attempt took longer than 90 s and did not stop within 5 s after that; "
        "its process was replaced."
    )
    assert failure.fingerprint != soft.failure.fingerprint
    assert failure.fingerprint == judge_stuck(attempt=3).failure.fingerprint
    assert failure.fingerprint != judge_stuck(job_type="pdf").failure.fingerprint


def test_failure_bears_the_fingerprint_of_its_job_type() -> None:
    def fingerprint(job_type: str) -> str:
        outcome = judge(ValueError(), policy(), attempt=1, job_type=job_type)
        assert isinstance(outcome, Retried)
        return outcome.failure.fingerprint

    assert fingerprint("mail") == fingerprint("mail") != fingerprint("report")


@pytest.mark.parametrize(
    ("error", "label"),
    [
        (Snooze(60, "not yet"), AttemptOutcome.SNOOZED),
        (RateLimited(60, "not yet"), AttemptOutcome.DEFERRED),
    ],
)
def test_snooze_and_rate_limit_give_the_attempt_back(
    error: BaseException, label: AttemptOutcome
) -> None:
    outcome = judge(error, policy(max_attempts=1), attempt=1, given_back=10**6)
    assert isinstance(outcome, GivenBack)
    assert (outcome.delay, outcome.label) == (60 * SECOND, label)
    assert outcome.failure.message == "not yet"
    assert not outcome.is_trouble


def test_cancel_ends_the_job_with_its_reason() -> None:
    assert judge_first(Cancel("not needed")) == Cancelled("not needed")


def test_cancelled_while_running_says_so() -> None:
    assert judge_first(JobCancelled()) == Cancelled("cancelled while running")


def test_discard_is_dead_whatever_is_left() -> None:
    outcome = judge_first(Discard("spam"), max_attempts=9)
    assert isinstance(outcome, Died)
    assert outcome.reason == DeadReason.DISCARDED
    assert outcome.label == AttemptOutcome.DISCARDED
    assert outcome.failure.message == "spam"


@pytest.mark.parametrize(
    "reason", [404, None, ValueError("why"), "a\0b\ud800", "x" * 9**6]
)
@pytest.mark.parametrize("make", [Cancel, Discard, lambda why: Snooze(1, why)])
def test_any_reason_becomes_text_that_can_be_stored(make: Any, reason: Any) -> None:
    match judge_first(make(reason)):
        case Cancelled(reason=text):
            pass
        case GivenBack(failure=failure) | Died(failure=failure):
            text = failure.message
        case other:
            pytest.fail(f"unexpected {other!r}")
    assert isinstance(text, str)
    assert "\0" not in text
    assert "\ud800" not in text
    assert len(text) <= 4000


@pytest.mark.parametrize(
    "retry_on",
    [{ConnectionError: None}, {ConnectionError: read_backoff(7)}],
)
def test_retry_on_makes_every_other_error_permanent(retry_on: Any) -> None:
    assert isinstance(judge_first(ConnectionResetError(), retry_on=retry_on), Retried)
    outcome = judge_first(ValueError(), retry_on=retry_on)
    assert isinstance(outcome, Died)
    assert (outcome.reason, outcome.label) == (
        DeadReason.DISCARDED,
        AttemptOutcome.DISCARDED,
    )


def test_retry_on_nothing_makes_every_error_permanent() -> None:
    outcome = judge_first(ValueError(), retry_on={})
    assert isinstance(outcome, Died)
    assert outcome.reason == DeadReason.DISCARDED


def test_retry_on_that_is_used_up_is_dead_by_exception() -> None:
    outcome = judge(ValueError(), policy(retry_on={ValueError: None}), attempt=3)
    assert isinstance(outcome, Died)
    assert outcome.reason == DeadReason.EXCEPTION


def test_retry_on_gives_each_class_its_own_backoff() -> None:
    retry_on = {
        ConnectionError: read_backoff(60),
        TimeoutError: lambda attempt, error: 90,
        OSError: None,
    }
    delays = [
        judge_first(error, retry_on=retry_on).delay  # type: ignore[union-attr]
        for error in (ConnectionResetError(), TimeoutError(), FileNotFoundError())
    ]
    assert delays == [60 * SECOND, 90 * SECOND, 5 * SECOND]


def test_timeout_is_retried_although_retry_on_does_not_name_it() -> None:
    outcome = judge_first(JobTimeout(), retry_on={ConnectionError: None})
    assert isinstance(outcome, Retried)


def test_discard_on_wins_over_retry_on() -> None:
    outcome = judge_first(
        ConnectionRefusedError(),
        retry_on={ConnectionError: None},
        discard_on=(ConnectionRefusedError,),
    )
    assert isinstance(outcome, Died)
    assert outcome.reason == DeadReason.DISCARDED


def test_discard_on_may_name_the_timeout() -> None:
    outcome = judge_first(JobTimeout(), discard_on=(JobTimeout,))
    assert isinstance(outcome, Died)
    assert outcome.reason == DeadReason.DISCARDED


def test_discard_on_everything_does_not_stop_a_snooze() -> None:
    assert isinstance(judge_first(Snooze(1), discard_on=(Exception,)), GivenBack)


def test_database_trouble_gives_the_attempt_back() -> None:
    outcome = judge(from_driver(LOST), policy(max_attempts=1), attempt=1)
    assert isinstance(outcome, GivenBack)
    assert outcome.is_trouble
    assert outcome.label == AttemptOutcome.RELEASED
    assert outcome.delay is not None
    assert 0.05 * SECOND <= outcome.delay <= 0.1 * SECOND


def test_database_trouble_waits_longer_each_time() -> None:
    outcome = judge(from_driver(LOST), policy(), attempt=1, given_back=5)
    assert isinstance(outcome, GivenBack)
    assert outcome.delay is not None
    assert 1.6 * SECOND <= outcome.delay <= 3.2 * SECOND


def test_database_trouble_is_forgiven_twenty_times() -> None:
    given_back = MAX_GIVEN_BACK - 1
    outcome = judge(from_driver(LOST), policy(), attempt=1, given_back=given_back)
    assert isinstance(outcome, GivenBack)
    outcome = judge(from_driver(LOST), policy(), attempt=1, given_back=MAX_GIVEN_BACK)
    assert isinstance(outcome, Retried)
    outcome = judge(from_driver(LOST), policy(), attempt=3, given_back=MAX_GIVEN_BACK)
    assert isinstance(outcome, Died)


def test_database_trouble_is_not_permanent_whatever_retry_on_says() -> None:
    outcome = judge_first(from_driver(LOST), retry_on={KeyError: None})
    assert isinstance(outcome, GivenBack)


def test_discard_on_wins_over_database_trouble() -> None:
    outcome = judge_first(from_driver(LOST), discard_on=(OperationalError,))
    assert isinstance(outcome, Died)
