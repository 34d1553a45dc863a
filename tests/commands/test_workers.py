"""`jobqueue workers`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.commands.running import jobqueue
from tests.factories import make_worker

pytestmark = pytest.mark.django_db

KEYS = [
    *("id", "name", "host", "pid", "queues", "concurrency", "state", "running"),
    *("processed", "failed", "memory", "version", "started_at", "last_seen_at"),
    *("is_stale", "last_seen_seconds"),
]


def test_workers_are_listed_with_what_they_do() -> None:
    make_worker(
        name="web-1",
        host="alpha",
        pid=4711,
        queues={"mail": 4, "default": 1},
        concurrency=10,
        running=3,
        processed=12345,
        failed=6,
        memory=51_000_000,
    )

    result = jobqueue("workers")

    assert (result.code, result.err) == (0, "")
    header, line = (text.split() for text in result.lines)
    assert header[:4] == ["NAME", "HOST", "PID", "STATE"]
    assert line[:4] == ["web-1", "alpha", "4711", "running"]
    assert line[-7:] == ["10", "3", "12,345", "6", "51", "MB", "default,mail:4"]
    assert max(map(len, result.lines)) <= 100


def test_a_worker_document_has_the_documented_keys() -> None:
    worker = make_worker(memory=1)

    document = jobqueue("workers", "--json").document

    assert list(document) == ["workers", "alive", "stale"]
    [found] = document["workers"]
    assert list(found) == KEYS
    assert (found["id"], found["queues"], found["memory"]) == (str(worker.pk), {}, 1)


def test_a_stale_worker_is_marked() -> None:
    make_worker(name="a")
    make_worker(name="b", last_seen_at=timezone.now() - timedelta(seconds=31))

    text, document = jobqueue("workers"), jobqueue("workers", "--json").document

    assert [line.split()[3] for line in text.lines] == ["STATE", "running", "STALE"]
    assert [w["is_stale"] for w in document["workers"]] == [False, True]
    assert (document["alive"], document["stale"]) == (1, 1)


def test_no_living_worker_is_code_1() -> None:
    empty = jobqueue("workers", "--json")
    make_worker(last_seen_at=timezone.now() - timedelta(hours=1))
    silent = jobqueue("workers")

    assert (empty.code, empty.document["workers"]) == (1, [])
    assert silent.code == 1
    assert silent.err == "No worker is alive. Start one with: manage.py runworker\n"
    assert "STALE" in silent.out
