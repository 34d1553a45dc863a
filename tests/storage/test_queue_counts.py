"""Queue counts: both versions count the same, and the caps hold."""

from __future__ import annotations

import pytest

from django_jobqueue.storage.database import Database
from django_jobqueue.storage.queue_counts import count_by_queue
from tests.factories import make_dead_job, make_job

pytestmark = pytest.mark.django_db


def count(db: Database) -> list[tuple[str, str, int]]:
    return sorted(row[:3] for row in count_by_queue(db, limit=100, total_limit=100))


def test_jobs_are_counted_by_queue_and_status(database: Database) -> None:
    make_job(queue="a")
    make_job(queue="a", isolate=True)
    make_job(queue="b", isolate=True)
    make_job(queue="b", scheduled=True)
    make_job(queue="c", running=True)
    make_job(queue="c", succeeded=True)
    make_dead_job(queue="d")
    assert count(database) == [
        ("a", "pending", 2),
        ("b", "pending", 1),
        ("b", "scheduled", 1),
        ("c", "running", 1),
        ("d", "dead", 1),
    ]


def test_empty_tables_have_no_counts(database: Database) -> None:
    assert count(database) == []


@pytest.mark.postgresql
def test_no_more_rows_than_the_limits_are_counted() -> None:
    for queue in ("a", "b"):
        for _ in range(3):
            make_job(queue=queue)
            make_dead_job(queue=queue)
    rows = count_by_queue(Database(alias="default"), limit=2, total_limit=4)
    assert sorted(row[:3] for row in rows if row.status == "pending") == [
        ("a", "pending", 2),
        ("b", "pending", 2),
    ]
    assert sum(row.number for row in rows if row.status == "dead") == 4
