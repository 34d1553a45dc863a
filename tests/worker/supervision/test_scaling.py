"""How many processes the work asks for, look after look."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_jobqueue.options import Options
from django_jobqueue.worker.supervision.scaling import UP_AFTER_SECONDS, Scaler

DOWN_AFTER = 30.0


def make_scaler(fewest: int = 1, most: int = 4, concurrency: int = 10) -> Scaler:
    return Scaler(
        Options(
            min_processes=fewest,
            max_processes=most,
            concurrency=concurrency,
            scale_down_after=timedelta(seconds=DOWN_AFTER),
        )
    )


def watch(scaler: Scaler, current: int, looks: list[tuple[float, int, int]]) -> int:
    """Let it look at (moment, running, backlog) one after the other; return what it
    chose at the last one, the first that would change anything included."""
    chosen = current
    for now, running, backlog in looks:
        chosen = scaler.choose(current, running=running, backlog=backlog, now=now)
        if chosen != current:
            return chosen
    return chosen


@pytest.mark.parametrize(
    ("running", "backlog", "need"),
    [(0, 0, 1), (10, 0, 1), (10, 1, 2), (3, 7, 1), (10, 15, 3), (10, 1000, 4)],
)
def test_need_is_a_slot_for_each_job_within_the_bounds(
    running: int, backlog: int, need: int
) -> None:
    assert make_scaler().measure_need(running=running, backlog=backlog) == need


def test_a_backlog_that_lasts_starts_processes() -> None:
    assert watch(make_scaler(), 1, [(0.0, 10, 15), (UP_AFTER_SECONDS, 10, 15)]) == 3


def test_a_backlog_that_is_gone_in_a_moment_starts_none() -> None:
    looks = [(0.0, 10, 15), (0.9, 10, 0), (UP_AFTER_SECONDS, 10, 15), (1.9, 10, 15)]
    assert watch(make_scaler(), 1, looks) == 1


def test_no_more_are_started_than_were_needed_all_the_time() -> None:
    looks = [(0.0, 10, 30), (0.5, 10, 10), (UP_AFTER_SECONDS, 10, 30)]
    assert watch(make_scaler(), 1, looks) == 2


def test_a_burst_without_end_stops_at_the_most() -> None:
    scaler = make_scaler(most=3)
    assert watch(scaler, 1, [(0.0, 10, scaler.limit), (9.0, 10, scaler.limit)]) == 3
    assert watch(scaler, 3, [(10.0, 30, scaler.limit), (99.0, 30, scaler.limit)]) == 3


def test_idle_processes_go_after_a_while_and_not_before() -> None:
    scaler = make_scaler()
    assert watch(scaler, 4, [(0.0, 0, 0), (DOWN_AFTER - 0.1, 0, 0)]) == 4
    assert watch(scaler, 4, [(DOWN_AFTER, 0, 0)]) == 1


def test_as_many_stay_as_were_needed_at_the_worst() -> None:
    looks = [(0.0, 0, 0), (15.0, 25, 0), (DOWN_AFTER, 0, 0)]
    assert watch(make_scaler(), 4, looks) == 3


def test_work_for_all_begins_the_count_anew() -> None:
    looks = [(0.0, 0, 0), (15.0, 40, 0), (DOWN_AFTER, 0, 0), (DOWN_AFTER + 14, 0, 0)]
    assert watch(make_scaler(), 4, looks) == 4


def test_never_fewer_than_the_fewest() -> None:
    looks = [(0.0, 0, 0), (DOWN_AFTER, 0, 0), (3 * DOWN_AFTER, 0, 0)]
    assert watch(make_scaler(fewest=2), 4, looks) == 2


def test_after_a_change_it_looks_for_as_long_again() -> None:
    scaler = make_scaler()
    assert watch(scaler, 1, [(0.0, 10, 5), (UP_AFTER_SECONDS, 10, 5)]) == 2
    assert scaler.choose(2, running=20, backlog=50, now=UP_AFTER_SECONDS + 0.1) == 2
