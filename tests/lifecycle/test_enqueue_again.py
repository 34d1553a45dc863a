"""Enqueue again: a copy of an ended job, through the checks of enqueue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from django_jobqueue import Job, exponential
from django_jobqueue.exceptions import JobNotEnded, UnknownJobType
from django_jobqueue.lifecycle.enqueue_again import enqueue_again
from django_jobqueue.storage.database import Database
from tests.factories import make_dead_job, make_job

COPIED: dict[str, Any] = {
    "queue": "mail",
    "priority": 7,
    "max_attempts": 9,
    "timeout": timedelta(seconds=12),
    "backoff": exponential(2, 60).dump(),
    "payload": {"x": 41},
    "tags": ["a", "b"],
    "meta": {"tenant": 5},
}


@pytest.mark.parametrize("end", ["succeeded", "cancelled"])
def test_copy_has_the_call_and_options_of_the_ended_job(
    database: Database, end: str
) -> None:
    old = make_job(**{end: True}, **COPIED)
    before = Job.objects.filter(pk=old.pk).values().get()
    new = enqueue_again(old, db=database)
    assert new.was_created
    new = Job.objects.get(pk=new.pk)
    assert new.pk != old.pk
    assert {name: getattr(new, name) for name in COPIED} == COPIED
    assert (new.job_type, new.status, new.attempts) == (old.job_type, "pending", 0)
    assert Job.objects.filter(pk=old.pk).values().get() == before


def test_copy_has_neither_the_key_nor_the_expiry(db: None) -> None:
    old = make_job(succeeded=True, expires_at=timezone.now())
    holder = make_job(unique_key="k")
    first, second = old.enqueue_again(), old.enqueue_again()
    assert len({first.pk, second.pk, holder.pk, old.pk}) == 4
    assert (first.unique_key, first.expires_at) == (None, None)


def test_positional_arguments_are_copied(db: None) -> None:
    old = make_job(succeeded=True, payload={}, args=[5])
    assert Job.objects.get(pk=old.enqueue_again().pk).args == [5]


@pytest.mark.parametrize(
    "values", [{}, {"scheduled": True}, {"running": True}, {"status": "blocked"}]
)
def test_job_that_has_not_ended_is_refused(db: None, values: dict[str, Any]) -> None:
    job = make_job(**values)
    with pytest.raises(JobNotEnded, match=f"is {job.status}; only one"):
        job.enqueue_again()
    assert Job.objects.count() == 1


def test_job_that_is_gone_or_dead_is_refused(db: None) -> None:
    with pytest.raises(JobNotEnded, match="is gone"):
        Job(pk=make_dead_job().pk).enqueue_again()


def test_job_type_without_a_handler_is_refused(db: None) -> None:
    with pytest.raises(UnknownJobType):
        make_job(succeeded=True, job_type="gone.away").enqueue_again()


def test_backoff_that_cannot_be_read_is_left_to_the_handler(db: None) -> None:
    assert make_job(succeeded=True, backoff={"x": 1}).enqueue_again().backoff is None


def test_async_twin_enqueues_a_copy(db: None) -> None:
    old = make_job(succeeded=True)
    assert async_to_sync(old.aenqueue_again)().pk != old.pk
