"""`jobqueue stats`, and the queries behind it."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import override_settings
from django.utils import timezone

from django_jobqueue import stats as stats_module
from django_jobqueue.models import Attempt, Job, Queue
from django_jobqueue.stats import read_stats
from tests.commands.running import jobqueue
from tests.factories import make_dead_job, make_job, make_worker

pytestmark = pytest.mark.django_db

NOW = timezone.now()


@pytest.fixture(autouse=True)
def begin_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set NOW for each test: a whole run takes longer than the minutes shown."""
    monkeypatch.setattr(sys.modules[__name__], "NOW", timezone.now())


def ago(**duration: float) -> Any:
    return NOW - timedelta(**duration)


def make_success(**duration: float) -> Job:
    end = ago(**duration)
    return make_job(
        succeeded=True, finished_at=end, prune_at=end + timedelta(days=1), queue="mail"
    )


def make_mixture() -> None:
    make_job(run_at=ago(minutes=3))
    make_job(run_at=ago(minutes=1))
    make_job(running=True)
    make_job(scheduled=True, queue="mail")
    make_job(status="blocked", queue="mail")
    make_job(cancelled=True)
    make_success(seconds=30)
    Queue.objects.create(name="idle")


def test_stats_count_jobs_by_queue_and_status() -> None:
    make_mixture()

    result = jobqueue("stats", "--json")

    assert (result.code, result.err) == (0, "")
    queues = {queue.pop("name"): queue for queue in result.document["queues"]}
    assert list(queues) == ["default", "idle", "mail"]
    assert 179 <= queues["default"].pop("oldest_waiting_seconds") <= 400
    assert queues["default"] == {
        "scheduled": 0,
        "pending": 2,
        "running": 1,
        "blocked": 0,
        "succeeded": 0,
        "cancelled": 1,
    }
    assert queues["mail"] == {
        "scheduled": 1,
        "pending": 0,
        "running": 0,
        "blocked": 1,
        "succeeded": 1,
        "cancelled": 0,
        "oldest_waiting_seconds": None,
    }
    assert result.document["totals"]["pending"] == 2
    assert result.document["estimated"] == []


def test_stats_are_a_readable_table() -> None:
    make_mixture()
    make_dead_job()

    result = jobqueue("stats")

    assert result.lines[0].split() == [
        "QUEUE",
        "SCHEDULED",
        "PENDING",
        "RUNNING",
        "BLOCKED",
        "SUCCEEDED",
        "CANCELLED",
        "OLDEST",
    ]
    assert result.lines[1].split()[:7] == ["default", "0", "2", "1", "0", "0", "1"]
    assert result.lines[4].split()[:7] == ["(all)", "1", "2", "1", "1", "1", "1"]
    assert max(map(len, result.lines)) <= 80
    assert "Dead jobs: 1" in result.lines
    assert "\x1b" not in result.out


def test_stats_of_an_empty_database_are_zeros() -> None:
    result = jobqueue("stats", "--json")

    assert result.code == 0
    assert set(result.document["totals"].values()) == {0}
    assert result.document["queues"] == []


def test_a_scheduled_job_that_is_due_counts_as_waiting() -> None:
    make_job(status="scheduled", run_at=ago(seconds=50))

    [queue] = read_stats(now=NOW).queues

    assert queue.waiting_since == ago(seconds=50)


def test_throughput_is_counted_by_minute() -> None:
    for seconds in (1, 59, 61, 299, 301):
        make_success(seconds=seconds)
    make_dead_job(died_at=ago(seconds=70))
    make_dead_job(died_at=ago(days=1))
    for outcome in ("failed", "timeout", "snoozed", "succeeded"):
        Attempt.objects.create(
            job_id=uuid4(), outcome=outcome, finished_at=ago(seconds=10)
        )

    minutes = read_stats(now=NOW).minutes

    assert [minute.succeeded for minute in minutes] == [2, 1, 0, 0, 1]
    assert [minute.failed for minute in minutes] == [2, 0, 0, 0, 0]
    assert [minute.died for minute in minutes] == [0, 1, 0, 0, 0]


def test_minutes_sets_the_number_of_minutes_shown() -> None:
    make_success(seconds=350)

    document = jobqueue("stats", "--json", "--minutes", 10).document

    assert sum(minute["succeeded"] for minute in document["minutes"]) == 1
    assert len(document["minutes"]) == 10


@pytest.mark.parametrize("retention", [0, None])
def test_successes_are_unknown_without_retention(retention: Any) -> None:
    with override_settings(JOBQUEUE={"RETENTION": {"succeeded": retention}}):
        stats = read_stats(now=NOW)
        text = jobqueue("stats").out

    assert {minute.succeeded for minute in stats.minutes} == {None}
    [line] = [line for line in text.splitlines() if line.startswith("(a minute)")]
    assert line.split() == ["(a", "minute)", "-", "0.0", "0.0"]


def test_successes_kept_by_count_are_a_lower_bound() -> None:
    for _ in range(2):
        make_job(succeeded=True, finished_at=ago(seconds=5), prune_at=ago(seconds=5))

    with override_settings(JOBQUEUE={"RETENTION": {"succeeded": {"keep": 2}}}):
        stats = read_stats(now=NOW)
    with override_settings(JOBQUEUE={"RETENTION": {"succeeded": {"keep": 3}}}):
        more = read_stats(now=NOW)

    assert (stats.minutes[0].succeeded, stats.at_least) == (2, ["succeeded"])
    assert (more.minutes[0].succeeded, more.at_least) == (2, [])


def test_workers_are_alive_or_stale() -> None:
    make_worker()
    make_worker(last_seen_at=ago(seconds=31))

    document = jobqueue("stats", "--json").document

    assert document["workers"] == {"alive": 1, "stale": 1}


@pytest.mark.postgresql
def test_statuses_without_an_index_are_estimated_in_a_large_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stats_module, "SMALL_TABLE_ROWS", 0)
    make_mixture()

    document = jobqueue("stats", "--json").document
    text = jobqueue("stats").out

    assert document["estimated"] == ["blocked", "succeeded", "cancelled"]
    queues = {queue["name"]: queue for queue in document["queues"]}
    assert (queues["default"]["pending"], queues["default"]["running"]) == (2, 1)
    assert (queues["mail"]["scheduled"], queues["mail"]["succeeded"]) == (1, None)
    assert queues["idle"]["pending"] == 0
    assert "~ is PostgreSQL's estimate; --exact counts." in text


@pytest.mark.postgresql
def test_exact_counts_a_large_table_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stats_module, "SMALL_TABLE_ROWS", 0)
    make_mixture()

    document = jobqueue("stats", "--json", "--exact").document

    assert document["estimated"] == []
    assert document["totals"]["blocked"] == 1


def test_stats_take_the_same_queries_however_many_jobs_there_are(
    django_assert_num_queries: Any, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(12) as few:
        read_stats()
    for _ in range(20):
        make_mixture_of_one()
    with django_assert_num_queries(len(few.captured_queries)):
        read_stats()


def make_mixture_of_one() -> None:
    make_job(queue=f"queue-{uuid4().hex[:8]}")


def test_stats_say_how_to_start_a_worker_if_jobs_wait_and_none_is_alive() -> None:
    hint = "start a worker with manage.py runworker"
    assert hint not in jobqueue("stats").out
    make_job()
    assert hint in jobqueue("stats").out
    make_worker()
    assert hint not in jobqueue("stats").out
