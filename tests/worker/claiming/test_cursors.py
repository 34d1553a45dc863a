"""Where a claim begins to read."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from django_jobqueue.storage.claims import HIGHEST, LOWEST, NIL, Claim, Span
from django_jobqueue.worker.claiming.cursors import (
    CLOCK_ERROR_MICROSECONDS,
    CURSOR_SECONDS,
    LATE_COMMIT_MICROSECONDS,
    Cursors,
)

AGING = timedelta(hours=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLOCK = round(NOW.timestamp()) * 1_000_000
HOUR = 3600 * 1_000_000


def make_claim(
    rank: int, *, id: int = 1, priority: int = 0, queue: str = "mail"
) -> Claim:
    values: dict[str, Any] = dict.fromkeys(Claim._fields)
    values |= {"id": uuid.UUID(int=id), "rank": rank, "priority": priority}
    return Claim(**values | {"queue": queue, "claimed_at": NOW})


def make_cursors(*claims: Claim) -> Cursors:
    """Return cursors that have just made a sweep with these claims, at 100.0."""
    cursors = Cursors(AGING)
    assert cursors.choose_spans(["mail"], 100.0) is None
    cursors.note(claims, None, began=100.0, now=100.0)
    return cursors


def test_first_claim_reads_everything() -> None:
    assert Cursors(AGING).choose_spans(["mail"], 0.0) is None


def test_queue_of_which_nothing_was_claimed_is_read_whole() -> None:
    cursors = make_cursors(make_claim(CLOCK))
    spans = cursors.choose_spans(["other"], 100.01)
    assert spans == [Span("other", LOWEST, NIL, HIGHEST)]


def test_old_backlog_is_read_from_the_last_job_claimed() -> None:
    rank = CLOCK - 10 * HOUR
    cursors = make_cursors(make_claim(rank, id=5), make_claim(rank, id=3))
    spans = cursors.choose_spans(["mail"], 100.0)
    assert spans == [
        Span("mail", rank, uuid.UUID(int=5), CLOCK + CLOCK_ERROR_MICROSECONDS)
    ]


def test_near_the_present_the_last_second_is_read_again() -> None:
    cursors = make_cursors(make_claim(CLOCK - 10))
    [span] = cursors.choose_spans(["mail"], 100.0) or []
    assert span == Span(
        "mail", CLOCK - LATE_COMMIT_MICROSECONDS, NIL, CLOCK + CLOCK_ERROR_MICROSECONDS
    )


def test_each_priority_has_a_cursor() -> None:
    cursors = make_cursors(
        make_claim(CLOCK - 10), make_claim(CLOCK - 5 * HOUR - 10, priority=5)
    )
    spans = cursors.choose_spans(["mail"], 100.0)
    assert spans == [
        Span(
            "mail",
            CLOCK - 5 * HOUR - LATE_COMMIT_MICROSECONDS,
            NIL,
            CLOCK - 5 * HOUR + CLOCK_ERROR_MICROSECONDS,
        ),
        Span(
            "mail",
            CLOCK - LATE_COMMIT_MICROSECONDS,
            NIL,
            CLOCK + CLOCK_ERROR_MICROSECONDS,
        ),
    ]


def test_overlapping_spans_are_one() -> None:
    cursors = make_cursors(
        make_claim(CLOCK - 9 * HOUR), make_claim(CLOCK - 5 * HOUR - 10, priority=5)
    )
    spans = cursors.choose_spans(["mail"], 100.0)
    one = Span(
        "mail", CLOCK - 9 * HOUR, uuid.UUID(int=1), CLOCK + CLOCK_ERROR_MICROSECONDS
    )
    assert spans == [one]


def test_rank_below_the_cursor_that_was_notified_is_read_once() -> None:
    cursors = make_cursors(make_claim(CLOCK))
    cursors.note_pending("mail", CLOCK - 99 * HOUR)
    cursors.note_pending("mail", CLOCK - 9 * HOUR)
    spans = cursors.choose_spans(["mail"], 100.0)
    assert spans is not None
    assert spans[0] == Span("mail", LOWEST, NIL, CLOCK - 99 * HOUR)

    cursors.note([], spans, began=100.0, now=100.0)
    assert len(cursors.choose_spans(["mail"], 100.0) or []) == 1


def test_sweeps_take_a_twentieth_of_the_time_and_move_no_cursor_back() -> None:
    cursors = Cursors(AGING)
    cursors.note([make_claim(CLOCK - HOUR)], None, began=100.0, now=101.0)
    assert cursors.choose_spans(["mail"], 120.9) is not None
    assert cursors.choose_spans(["mail"], 121.1) is None

    cursors.note([make_claim(CLOCK - 2 * HOUR)], None, began=121.1, now=121.1)
    [span] = cursors.choose_spans(["mail"], 121.1) or []
    assert span.low == CLOCK - HOUR


def test_priority_not_seen_lately_is_left_to_the_sweeps() -> None:
    cursors = Cursors(AGING)
    first = make_claim(CLOCK - 5 * HOUR, priority=5)
    cursors.note([first], None, began=90.0, now=100.0)
    later = 100.0 + CURSOR_SECONDS + 1
    cursors.note([make_claim(CLOCK)], [], began=later, now=later)
    assert len(cursors.choose_spans(["mail"], later) or []) == 1
