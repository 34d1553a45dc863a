"""The clock for --idle-timeout."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from django_jobqueue.options import Options
from django_jobqueue.worker.health.status import IdleClock, WorkerStatus

IDLE = WorkerStatus(is_ready=True, confirmed=1000.0)


def make_clock(seconds: float | None = 10.0) -> IdleClock:
    limit = None if seconds is None else timedelta(seconds=seconds)
    return IdleClock(Options(idle_timeout=limit))


def test_it_is_over_after_so_long_without_a_job() -> None:
    clock = make_clock()
    assert not clock.is_over(replace(IDLE, is_ready=False), 1000.0)
    assert not clock.is_over(IDLE, 1009.9)
    assert clock.is_over(IDLE, 1010.0)


def test_a_running_job_begins_the_count_anew() -> None:
    clock = make_clock()
    assert not clock.is_over(replace(IDLE, running=1), 1009.0)
    assert not clock.is_over(IDLE, 1018.9)
    assert clock.is_over(IDLE, 1019.0)


def test_a_job_too_short_to_be_seen_running_counts_too() -> None:
    clock = make_clock()
    assert not clock.is_over(replace(IDLE, processed=1), 1009.0)
    assert not clock.is_over(replace(IDLE, processed=1), 1018.9)


def test_time_without_a_database_does_not_count() -> None:
    clock = make_clock(100.0)
    clock.is_over(IDLE, 1000.0)
    # The last confirmed beat is older than the TTL of 30 s.
    assert not clock.is_over(IDLE, 1100.0)
    assert not clock.is_over(replace(IDLE, confirmed=1190.0), 1199.0)
    assert clock.is_over(replace(IDLE, confirmed=1190.0), 1200.0)


def test_without_a_limit_it_is_never_over() -> None:
    clock = make_clock(None)
    assert not clock.is_over(replace(IDLE, confirmed=1e9), 1e9)
