"""How many jobs are claimed ahead: many short ones, no long ones."""

from django_jobqueue.worker.claiming.claim_room import (
    PREFETCH_SECONDS,
    SAMPLE_SECONDS,
    SHORT_JOB_SECONDS,
    Prefetch,
)


def measure(prefetch: Prefetch, *, rate: int, seconds: float, times: int = 20) -> None:
    """Take readings of a worker that ends `rate` jobs a second, `seconds` each."""
    start = 1000.0
    for n in range(times + 1):
        ended = n * rate // 10
        prefetch.measure(start + n / 10, ended=ended, seconds=ended * seconds)


def test_nothing_is_claimed_ahead_before_the_first_reading() -> None:
    prefetch = Prefetch(batch_size=200)
    assert prefetch.ahead == 0
    prefetch.measure(1.0, ended=100, seconds=0.1)
    assert prefetch.ahead == 0


def test_short_jobs_are_claimed_for_a_moment_ahead() -> None:
    prefetch = Prefetch(batch_size=10_000)
    measure(prefetch, rate=1000, seconds=0.001)
    assert 0.95 * 1000 * PREFETCH_SECONDS <= prefetch.ahead <= 1000 * PREFETCH_SECONDS


def test_long_jobs_are_not_claimed_ahead() -> None:
    prefetch = Prefetch(batch_size=200)
    measure(prefetch, rate=1000, seconds=2 * SHORT_JOB_SECONDS)
    assert prefetch.ahead == 0


def test_two_batches_are_the_most_that_is_claimed_ahead() -> None:
    prefetch = Prefetch(batch_size=50)
    measure(prefetch, rate=100_000, seconds=0.0001)
    assert prefetch.ahead == 100


def test_readings_close_together_are_taken_as_one() -> None:
    prefetch = Prefetch(batch_size=10_000)
    prefetch.measure(1.0, ended=0, seconds=0)
    prefetch.measure(1.0 + SAMPLE_SECONDS / 2, ended=10_000, seconds=1)
    assert prefetch.ahead == 0
    prefetch.measure(1.0 + 2 * SAMPLE_SECONDS, ended=10_000, seconds=1)
    assert prefetch.ahead > 0


def test_idle_worker_claims_less_and_less_ahead() -> None:
    prefetch = Prefetch(batch_size=10_000)
    measure(prefetch, rate=1000, seconds=0.001)
    before = prefetch.ahead
    now = 2000.0
    prefetch.measure(now, ended=2000, seconds=2)
    assert prefetch.ahead < before
    for n in range(20):
        prefetch.measure(now + n, ended=2000, seconds=2)
    assert prefetch.ahead == 0


def test_slowed_down_worker_claims_nothing_ahead() -> None:
    prefetch = Prefetch(batch_size=10_000)
    measure(prefetch, rate=1000, seconds=0.001)
    prefetch.slow_down()
    assert prefetch.ahead == 0


def test_slowed_down_worker_gets_back_to_its_pace() -> None:
    prefetch = Prefetch(batch_size=10_000)
    prefetch.slow_down()
    measure(prefetch, rate=1000, seconds=0.001)
    assert prefetch.ahead >= 0.95 * 1000 * PREFETCH_SECONDS


def test_jobs_that_become_long_end_claiming_ahead() -> None:
    prefetch = Prefetch(batch_size=10_000)
    measure(prefetch, rate=1000, seconds=0.001)
    ended, seconds = 2000, 2.0
    for n in range(1, 6):
        ended, seconds = ended + 1, seconds + 10
        prefetch.measure(2000.0 + n, ended=ended, seconds=seconds)
    assert prefetch.ahead == 0
