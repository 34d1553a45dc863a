"""How many jobs are claimed ahead: many short ones, no long ones."""

from django_jobqueue.worker.pace import AHEAD, SAMPLE, SHORT, Pace


def measure(pace: Pace, *, rate: int, seconds: float, times: int = 20) -> None:
    """Take readings of a worker that ends `rate` jobs a second, each so long."""
    start = 1000.0
    for n in range(times + 1):
        ended = n * rate // 10
        pace.measure(start + n / 10, ended=ended, seconds=ended * seconds)


def test_nothing_is_claimed_ahead_before_the_first_reading() -> None:
    pace = Pace(batch_size=200)
    assert pace.ahead == 0
    pace.measure(1.0, ended=100, seconds=0.1)
    assert pace.ahead == 0


def test_short_jobs_are_claimed_for_a_moment_ahead() -> None:
    pace = Pace(batch_size=10_000)
    measure(pace, rate=1000, seconds=0.001)
    assert 0.95 * 1000 * AHEAD <= pace.ahead <= 1000 * AHEAD


def test_long_jobs_are_not_claimed_ahead() -> None:
    pace = Pace(batch_size=200)
    measure(pace, rate=1000, seconds=2 * SHORT)
    assert pace.ahead == 0


def test_two_batches_are_the_most_that_is_claimed_ahead() -> None:
    pace = Pace(batch_size=50)
    measure(pace, rate=100_000, seconds=0.0001)
    assert pace.ahead == 100


def test_readings_close_together_are_taken_as_one() -> None:
    pace = Pace(batch_size=10_000)
    pace.measure(1.0, ended=0, seconds=0)
    pace.measure(1.0 + SAMPLE / 2, ended=10_000, seconds=1)
    assert pace.ahead == 0
    pace.measure(1.0 + 2 * SAMPLE, ended=10_000, seconds=1)
    assert pace.ahead > 0


def test_idle_worker_claims_less_and_less_ahead() -> None:
    pace = Pace(batch_size=10_000)
    measure(pace, rate=1000, seconds=0.001)
    before = pace.ahead
    now = 2000.0
    pace.measure(now, ended=2000, seconds=2)
    assert pace.ahead < before
    for n in range(20):
        pace.measure(now + n, ended=2000, seconds=2)
    assert pace.ahead == 0


def test_slowed_down_worker_claims_nothing_ahead() -> None:
    pace = Pace(batch_size=10_000)
    measure(pace, rate=1000, seconds=0.001)
    pace.slow_down()
    assert pace.ahead == 0


def test_slowed_down_worker_gets_back_to_its_pace() -> None:
    pace = Pace(batch_size=10_000)
    pace.slow_down()
    measure(pace, rate=1000, seconds=0.001)
    assert pace.ahead >= 0.95 * 1000 * AHEAD


def test_jobs_that_become_long_end_claiming_ahead() -> None:
    pace = Pace(batch_size=10_000)
    measure(pace, rate=1000, seconds=0.001)
    ended, seconds = 2000, 2.0
    for n in range(1, 6):
        ended, seconds = ended + 1, seconds + 10
        pace.measure(2000.0 + n, ended=ended, seconds=seconds)
    assert pace.ahead == 0
