"""Look: what waits, and for how long."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from django_jobqueue import Job
from django_jobqueue.lifecycle.database import Database
from django_jobqueue.lifecycle.look import (
    Look,
    count_backlog,
    find_next_due,
    has_work,
    look_around,
)
from tests.factories import make_job
from tests.lifecycle.claiming import claim


def test_a_look_names_each_queue_with_pending_jobs_once(database: Database) -> None:
    for queue in ("b", "a", "b", "c-1"):
        make_job(queue=queue)
    make_job(queue="idle", scheduled=True)
    make_job(queue="busy", running=True)

    look = look_around(database)

    assert (sorted(look.queues), look.suspects) == (["a", "b", "c-1"], [])


def test_a_look_tells_suspects_from_the_others(database: Database) -> None:
    for queue, isolate in (("a", False), ("b", False), ("b", True), ("c", True)):
        make_job(queue=queue, isolate=isolate)
    make_job(queue="d", isolate=True, scheduled=True)
    make_job(queue="e", isolate=True, running=True)

    look = look_around(database)

    assert (sorted(look.queues), sorted(look.suspects)) == (["a", "b"], ["b", "c"])


def test_a_look_tells_when_the_next_job_is_due(database: Database) -> None:
    now = timezone.now()
    assert look_around(database) == Look([], [], None)
    make_job(scheduled=True, run_at=now + timedelta(seconds=40))
    make_job(scheduled=True, run_at=now - timedelta(seconds=20))

    seconds = look_around(database, now=now).next_due

    assert seconds is not None
    assert abs(seconds + 20) < 0.01


def test_find_next_due_tells_the_seconds_until_the_next_job(database: Database) -> None:
    now = timezone.now()
    assert find_next_due(database) is None
    make_job(scheduled=True, run_at=now + timedelta(seconds=40))
    make_job(scheduled=True, run_at=now + timedelta(seconds=20))

    seconds = find_next_due(database, now=now)

    assert seconds is not None
    assert abs(seconds - 20) < 0.01


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


def test_has_work_sees_what_is_pending_running_or_due(database: Database) -> None:
    now = timezone.now()
    later = make_job(queue="a", scheduled=True)
    assert not has_work(database, ["a"], exclude=[])
    assert has_work(database, ["a"], exclude=[], now=now + timedelta(hours=2))
    later.delete()

    make_job(queue="a")
    assert has_work(database, ["a"], exclude=[])
    assert has_work(database, None, exclude=[])
    assert not has_work(database, None, exclude=["a"])
    assert not has_work(database, ["b"], exclude=[])

    claim(database, queue="a")
    assert has_work(database, ["a"], exclude=[])
    Job.objects.all().delete()
    assert not has_work(database, None, exclude=[])
