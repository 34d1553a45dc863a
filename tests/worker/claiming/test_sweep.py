"""Which ranks a sweep reads after one took too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from django_jobqueue.storage.claims import HIGHEST, LOWEST
from django_jobqueue.worker.claiming.sweep import (
    FIRST_PART_MICROSECONDS,
    RETRY_WHOLE_SECONDS,
    Sweep,
)

CLOCK = 1_767_225_600_000_000


def test_a_sweep_reads_everything_until_one_takes_too_long() -> None:
    sweep = Sweep()
    assert sweep.list_spans(["mail"]) is None

    sweep.fail(began=0.0, now=5.0, clock=CLOCK)

    [span] = sweep.list_spans(["mail"]) or []
    assert (span.low, span.high) == (CLOCK - FIRST_PART_MICROSECONDS, HIGHEST)
    # The cursors have as much time as the sweep had.
    assert sweep.next_at == 10.0


def test_after_its_last_part_everything_is_tried_again_later() -> None:
    sweep = Sweep()
    sweep.fail(began=0.0, now=5.0, clock=CLOCK)
    for _ in range(2):
        sweep.note(began=10.0, now=10.0, has_found=False)

    assert sweep.list_spans(["mail"]) is None
    assert sweep.next_at == 10.0 + RETRY_WHOLE_SECONDS
    assert sweep.is_slow

    sweep.note(began=80.0, now=80.0, has_found=False)
    assert not sweep.is_slow


def test_a_part_with_jobs_is_read_again() -> None:
    sweep = Sweep()
    sweep.fail(began=0.0, now=5.0, clock=CLOCK)
    before = sweep.list_spans(["mail"])
    sweep.note(began=10.0, now=10.0, has_found=True)
    assert sweep.list_spans(["mail"]) == before


@given(st.lists(st.booleans(), max_size=200))
def test_the_parts_cover_all_ranks_whatever_fails(fails: list[bool]) -> None:
    sweep = Sweep()
    sweep.fail(began=0.0, now=5.0, clock=CLOCK)
    low = HIGHEST
    for has_failed in fails:
        spans = sweep.list_spans(["mail"])
        if spans is None:
            break
        [span] = spans
        assert span.high == low
        if has_failed and span.high - span.low > 10 * FIRST_PART_MICROSECONDS:
            sweep.fail(began=0.0, now=5.0, clock=CLOCK)
            left = sweep.list_spans(["mail"])
            if left is None or left[0].high == span.low:
                # Too small to be divided: it is left to the next sweep.
                low = span.low
        else:
            low = span.low
            sweep.note(began=0.0, now=0.0, has_found=False)
    else:
        return
    assert low == LOWEST
