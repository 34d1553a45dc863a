"""The page of queues: all of them, with numbers that do not grow with the backlog."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_jobqueue.models import Queue
from tests.admin.pages import list_url, page_url, read_text
from tests.factories import make_dead_job, make_job, make_worker


def read_table(response: Any) -> dict[str, list[str]]:
    """Return the cells of the page, by the name of the queue."""
    table = read_text(response).partition('id="result_list"')[2]
    rows = re.findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2])
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
    plain = [[re.sub(r"<[^>]+>", "", cell).strip() for cell in row] for row in cells]
    return {row[0]: row[1:] for row in plain}


def test_queues_without_a_row_are_listed_with_their_numbers(client: Client) -> None:
    Queue.objects.create(name="idle")
    make_job(queue="mail", run_at=timezone.now() - timedelta(hours=2))
    make_job(queue="mail", isolate=True)
    make_job(queue="mail", running=True)
    make_job(queue="later", scheduled=True)
    make_job(queue="ended", succeeded=True)
    make_dead_job(queue="grave")
    make_worker(queues={"mail": 2, "served": 1, "not-this": 0})
    make_worker(queues={"gone": 1}, last_seen_at=timezone.now() - timedelta(hours=1))
    table = read_table(client.get(list_url("queue")))
    assert list(table) == ["grave", "idle", "later", "mail", "served"]
    assert table["mail"][:4] == [
        "2 waiting",
        "0 scheduled",
        "1 running",
        "0 dead",
    ]
    assert table["mail"][4].startswith("2 h")
    assert table["mail"][5] == "1"
    assert table["later"][1] == "1 scheduled"
    assert table["later"][5] == "0 ! not served"
    assert table["grave"][3] == "1 dead"
    assert table["served"][4:] == ["–", "1"]


def test_numbers_link_to_the_jobs_they_count(client: Client) -> None:
    job, dead = make_job(queue="mail"), make_dead_job(queue="mail")
    page = client.get(list_url("queue")).content.decode()
    for model, query, row in (
        ("job", "?queue=mail&amp;status=pending", job),
        ("deadjob", "?queue=mail", dead),
    ):
        assert f'"{list_url(model, query)}"' in page
        url = list_url(model, query.replace("&amp;", "&"))
        assert page_url(row) in client.get(url).content.decode()


@pytest.mark.parametrize("name", ["mail", "a_b.c-d"])
def test_queue_without_a_row_has_a_page(client: Client, name: str) -> None:
    make_job(queue=name)
    page = read_text(client.get(page_url(Queue(name=name))))
    assert "1 waiting" in page
    assert client.get(page_url(Queue(name=name), "history")).status_code == 200
    assert not Queue.objects.exists()


def test_counts_are_capped_and_say_so(client: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr("django_jobqueue.queue_numbers.MAX_PENDING_PER_QUEUE", 2)
    monkeypatch.setattr("django_jobqueue.queue_numbers.MAX_ROWS_PER_STATUS", 3)
    for _ in range(2):
        make_job(queue="a")
        make_dead_job(queue="a")
        make_job(queue="b", running=True)
    make_job(queue="b")
    make_dead_job(queue="b")
    table = read_table(client.get(list_url("queue")))
    assert table["a"][:4] == ["2+ waiting", "0 scheduled", "0 running", "2+ dead"]
    assert table["b"][:4] == ["1 waiting", "0 scheduled", "2 running", "1+ dead"]


@pytest.mark.postgresql
def test_one_statement_counts_however_many_queues(client: Client) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            client.get(list_url("queue"))
        return len(queries)

    make_job(queue="first")
    few = count()
    for number in range(20):
        make_job(queue=f"queue-{number}")
        make_dead_job(queue=f"dead-{number}")
    assert count() == few


def test_search_and_pages_narrow_the_queues(client: Client) -> None:
    for number in range(120):
        Queue.objects.create(name=f"queue-{number:03}")
    assert len(read_table(client.get(list_url("queue")))) == 100
    assert len(read_table(client.get(list_url("queue", "?p=2")))) == 20
    found = read_table(client.get(list_url("queue", "?q=QUEUE+-07")))
    assert list(found) == [f"queue-07{digit}" for digit in range(10)]
