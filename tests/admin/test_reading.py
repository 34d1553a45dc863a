"""Reading changes nothing, and costs the same however many rows there are."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core import serializers
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_jobqueue.admin import paging
from django_jobqueue.models import Attempt, DeadJob, Job, Queue, WorkerHeartbeat
from django_jobqueue.models.record import make_id
from tests.admin.pages import HOME, PageParser, list_url, page_url, read_text
from tests.admin.rows import MODELS, Rows, make_attempt
from tests.factories import make_job

TABLES = (Job, DeadJob, Attempt, WorkerHeartbeat, Queue, LogEntry)
MANY = 10_000


def dump() -> str:
    return "".join(
        serializers.serialize("json", table.objects.order_by("pk")) for table in TABLES
    )


def crawl(client: Client, start: str) -> set[str]:
    """Follow every link to the app's pages; return the addresses."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        url = waiting.pop()
        if url in seen:
            continue
        seen.add(url)
        response = client.get(url, follow=True)
        assert response.status_code == 200, url
        path = response.redirect_chain[-1][0] if response.redirect_chain else url
        path = path.partition("?")[0]
        for link in PageParser(response.content.decode()).find_links():
            absolute = path + link if link.startswith("?") else link
            if absolute.startswith(HOME):
                waiting.append(absolute.partition("#")[0])
    return seen


@pytest.mark.parametrize("user", ["superuser", "viewer"])
def test_crawl_of_every_page_changes_nothing(
    clients: dict[str, Client], rows: Rows, user: str, monkeypatch: Any
) -> None:
    # One value for each combinable filter is enough: other values give the same page.
    monkeypatch.setattr("django_jobqueue.admin.filters.MAX_CHOICES", 1)
    monkeypatch.setattr("django_jobqueue.admin.jobs.JobAdmin.list_filter", ())
    before = dump()
    seen = crawl(clients[user], HOME)
    for row in (rows.pending, rows.running, rows.dead, rows.attempt, rows.worker):
        assert any(url.startswith(page_url(row)) for url in seen)
    asked = any("/reschedule/" in url for url in seen)
    assert asked == (user == "superuser")
    assert dump() == before


def test_every_choice_of_every_filter_is_shown(client: Client, rows: Rows) -> None:
    before = dump()
    for model in MODELS:
        page = PageParser(client.get(list_url(model)).content.decode())
        for link in page.find_links():
            if link.startswith("?"):
                assert client.get(list_url(model, link)).status_code == 200
    assert dump() == before


def fill(count: int) -> None:
    """Insert rows of every model with SQL: the ORM would send each default."""
    ids = [make_id().hex for _ in range(count)]
    jobs = [(id, "testapp.add") for id in ids]
    queues = [(f"queue-{count}-{number}",) for number in range(count)]
    with connection.cursor() as cursor:
        for statement, values in (
            ("INSERT INTO jobqueue_job (id, job_type) VALUES (%s, %s)", jobs),
            ("INSERT INTO jobqueue_deadjob (id, job_type) VALUES (%s, %s)", jobs),
            ("INSERT INTO jobqueue_attempt (job_id, message) VALUES (%s, %s)", jobs),
            ("INSERT INTO jobqueue_workerheartbeat (id, host) VALUES (%s, %s)", jobs),
            ("INSERT INTO jobqueue_queue (name) VALUES (%s)", queues),
        ):
            cursor.executemany(statement, values)


def list_pages(rows: Rows) -> list[str]:
    lists = [list_url(model) for model in MODELS]
    searches = [list_url(model, "?q=add") for model in MODELS]
    filters = [
        list_url("job", "?status=running"),
        list_url("job", "?status=pending&queue=default&job_type=testapp.add"),
        list_url("job", f"?created=3600&worker_id={rows.worker.pk}"),
        list_url("deadjob", "?reason__exact=exception&fingerprint=f00"),
        list_url("attempt", f"?job_id={rows.dead.pk}"),
    ]
    return lists + searches + filters + [page_url(rows.pending), page_url(rows.dead)]


def count_queries(client: Client, url: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url, follow=True).status_code == 200
    return len(queries)


@pytest.mark.slow
def test_query_counts_are_equal_at_10_and_10_000_rows(
    client: Client, rows: Rows
) -> None:
    fill(10)
    for url in list_pages(rows):
        # The first request of a process reads the content types.
        client.get(url)
    few = {url: count_queries(client, url) for url in list_pages(rows)}
    fill(MANY)
    many = {url: count_queries(client, url) for url in few}
    assert many == few
    assert max(many.values()) <= 10


@pytest.mark.slow
def test_queries_of_an_action_depend_on_its_jobs_not_on_the_table(
    client: Client, rows: Rows
) -> None:
    def cancel() -> int:
        job = make_job()
        with CaptureQueriesContext(connection) as queries:
            client.post(page_url(job, "cancel"), {"confirmed": 1})
        return len(queries)

    cancel()
    few = cancel()
    fill(MANY)
    assert cancel() == few


def test_list_counts_to_a_limit_and_says_so(
    client: Client, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "MAX_ROWS", 5)
    for _ in range(5):
        make_job()
    assert "5 jobs" in read_text(client.get(list_url("job")))
    make_job()
    with CaptureQueriesContext(connection) as queries:
        page = read_text(client.get(list_url("job")))
    assert "5+ jobs" in page
    assert "More than 5" in page
    counts = [query["sql"] for query in queries if "COUNT(" in query["sql"]]
    assert counts
    assert all("LIMIT 6" in sql for sql in counts)


def test_list_reads_no_column_it_does_not_show(client: Client, rows: Rows) -> None:
    with CaptureQueriesContext(connection) as queries:
        client.get(list_url("job"))
        client.get(list_url("deadjob"))
        client.get(list_url("attempt"))
    text = " ".join(query["sql"] for query in queries)
    for column in ("payload", "result", "meta", "traceback"):
        assert f'"{column}"' not in text


def test_page_of_a_job_shows_its_newest_attempts_and_links_to_all(
    client: Client, rows: Rows
) -> None:
    job = make_job()
    for token in range(1, 61):
        make_attempt(job, lease_token=token, number=token, message=f"end {token}")
    page = read_text(client.get(page_url(job)))
    assert "end 60<" in page
    assert "end 11<" in page
    assert "end 10<" not in page
    assert list_url("attempt", f"?job_id={job.pk}") in page
