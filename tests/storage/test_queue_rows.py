"""The names of queues that workers have found."""

from __future__ import annotations

from django_jobqueue.models import Queue
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.queue_rows import read_queues, remember_queues


def test_queues_are_remembered_once(database: Database) -> None:
    remember_queues(database, ["a", "b"])
    remember_queues(database, ["b", "c"])

    names = Queue.objects.order_by("name").values_list("name", flat=True)
    assert list(names) == ["a", "b", "c"]
    assert read_queues(database) == ["a", "b", "c"]
