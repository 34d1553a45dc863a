"""Look: what waits, and for how long."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.storage.backlog import (
    Backlog,
    count_backlog,
    find_next_due,
    find_work_left,
    read_backlog,
)
from django_jobqueue.storage.database import Database
from tests.factories import make_job
from tests.lifecycle.claiming import claim


def test_a_look_names_each_queue_with_pending_jobs_once(database: Database) -> None:
    for queue in ("b", "a", "b", "c-1"):
        make_job(queue=queue)
    make_job(queue="idle", scheduled=True)
    make_job(queue="busy", running=True)

    look = read_backlog(database)

    assert (sorted(look.queues), look.suspects) == (["a", "b", "c-1"], [])


def test_a_look_tells_suspects_from_the_others(database: Database) -> None:
    for queue, isolate in (("a", False), ("b", False), ("b", True), ("c", True)):
        make_job(queue=queue, isolate=isolate)
    make_job(queue="d", isolate=True, scheduled=True)
    make_job(queue="e", isolate=True, running=True)

    look = read_backlog(database)

    assert (sorted(look.queues), sorted(look.suspects)) == (["a", "b"], ["b", "c"])


def test_a_look_tells_when_the_next_job_is_due(database: Database) -> None:
    now = timezone.now()
    assert read_backlog(database) == Backlog([], [], None)
    make_job(scheduled=True, run_at=now + timedelta(seconds=40))
    make_job(scheduled=True, run_at=now - timedelta(seconds=20))

    seconds = read_backlog(database, now=now).next_due

    assert seconds is not None
    assert abs(seconds + 20) < 0.01


def test_find_next_due_tells_the_seconds_until_the_next_job(database: Database) -> None:
    now = timezone.now()
    assert find_next_due(database) == (False, None)
    make_job(scheduled=True, run_at=now + timedelta(seconds=40))
    make_job(scheduled=True, run_at=now + timedelta(seconds=20))

    due = find_next_due(database, now=now)

    assert due.seconds is not None
    assert not due.is_overdue
    assert abs(due.seconds - 20) < 0.01


def test_find_next_due_sees_past_a_job_that_is_due(database: Database) -> None:
    now = timezone.now()
    make_job(scheduled=True, run_at=now - timedelta(seconds=40))
    assert find_next_due(database, now=now) == (True, None)

    make_job(scheduled=True, run_at=now + timedelta(seconds=20))

    due = find_next_due(database, now=now)
    assert due.seconds is not None
    assert due.is_overdue
    assert abs(due.seconds - 20) < 0.01


def test_backlog_is_what_waits_for_a_slot(database: Database) -> None:
    assert count_backlog(database, None, exclude=[], limit=10) == 0
    for queue in ("a", "a", "b", "c"):
        make_job(queue=queue)
    make_job(queue="a", isolate=True)
    make_job(queue="a", scheduled=True)
    make_job(queue="a", running=True)

    assert count_backlog(database, None, exclude=[], limit=10) == 4
    assert count_backlog(database, None, exclude=["b"], limit=10) == 3
    assert count_backlog(database, ["a", "c"], exclude=["c"], limit=10) == 2
    assert count_backlog(database, ["d"], exclude=[], limit=10) == 0


def test_backlog_is_counted_up_to_a_limit(database: Database) -> None:
    for queue in ("a", "a", "b", "b"):
        make_job(queue=queue)

    assert count_backlog(database, None, exclude=[], limit=3) == 3


def test_work_left_is_what_is_pending_running_or_due(database: Database) -> None:
    now = timezone.now()
    later = make_job(queue="a", scheduled=True)
    assert not find_work_left(database, ["a"], exclude=[]).has_any
    assert find_work_left(
        database, ["a"], exclude=[], now=now + timedelta(hours=2)
    ).has_any
    later.delete()

    make_job(queue="a")
    assert find_work_left(database, ["a"], exclude=[]).has_any
    assert find_work_left(database, None, exclude=[]).has_any
    assert not find_work_left(database, None, exclude=["a"]).has_any
    assert not find_work_left(database, ["b"], exclude=[]).has_any

    claim(database, queue="a")
    assert find_work_left(database, ["a"], exclude=[]).has_any
    Job.objects.all().delete()
    assert not find_work_left(database, None, exclude=[]).has_any
