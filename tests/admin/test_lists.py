"""The lists: search, filters, order, and the texts about a row."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_jobqueue.admin.filters import make_lowest_id
from django_jobqueue.models import DeadJob, Job, Queue, WorkerHeartbeat
from django_jobqueue.models.record import make_id
from django_jobqueue.registry import all_handlers
from tests.admin.pages import list_url, page_url, read_text
from tests.admin.rows import Rows
from tests.factories import make_dead_job, make_job, make_worker


def find(client: Client, model: str, **query: Any) -> list[Any]:
    response = client.get(list_url(model), query)
    assert response.status_code == 200
    return [row.pk for row in response.context["cl"].result_list]


def test_newest_job_comes_first(client: Client) -> None:
    ids = [make_job().pk for _ in range(5)]
    assert find(client, "job") == ids[::-1]


def test_search_finds_a_job_by_its_id(client: Client, rows: Rows) -> None:
    assert find(client, "job", q=str(rows.running.pk)) == [rows.running.pk]
    assert find(client, "job", q=rows.running.pk.hex) == [rows.running.pk]
    assert find(client, "deadjob", q=str(rows.dead.pk)) == [rows.dead.pk]
    assert find(client, "attempt", q=str(rows.dead.pk)) == [rows.attempt.pk]
    assert find(client, "workerheartbeat", q=str(rows.worker.pk)) == [rows.worker.pk]


def test_search_finds_types_queues_and_keys(client: Client) -> None:
    added = make_job(job_type="testapp.add").pk
    queued = make_job(job_type="gone.away", queue="mail").pk
    keyed = make_job(job_type="gone.away", unique_key="welcome 1").pk
    assert find(client, "job", q="testapp.add") == [added]
    # A part of a name is matched with handlers only; other types must be whole.
    assert find(client, "job", q="APP.AD") == [added]
    assert find(client, "job", q="gone") == []
    assert find(client, "job", q="gone.away") == [keyed, queued]
    assert find(client, "job", q="mail") == [queued]
    assert find(client, "job", q='"welcome 1"') == [keyed]
    assert find(client, "job", q="gone.away queue:mail") == [queued]
    assert find(client, "job", q='"key:welcome 1"') == [keyed]
    assert find(client, "job", q="type:mail") == []


def test_filters_narrow_the_list(client: Client, rows: Rows) -> None:
    for status in ("pending", "scheduled", "running", "succeeded"):
        assert find(client, "job", status=status) == [getattr(rows, status).pk]
    assert find(client, "job", worker_id=str(rows.worker.pk)) == [rows.running.pk]
    assert find(client, "job", worker_id="not-an-id") == []
    mail = make_job(queue="mail", job_type="testapp.nothing").pk
    assert find(client, "job", queue="mail") == [mail]
    assert find(client, "job", job_type="testapp.nothing") == [mail]
    assert find(client, "deadjob", reason__exact="timeout") == []
    assert find(client, "deadjob", fingerprint="f00") == [rows.dead.pk]


def test_created_filter_reads_the_time_from_the_id(client: Client) -> None:
    now = timezone.now()
    old = make_job(id=make_lowest_id(now - timedelta(hours=2))).pk
    new = make_job().pk
    assert find(client, "job", created="3600") == [new]
    assert find(client, "job", created="86400") == [new, old]
    assert find(client, "job", created="soon") == []
    assert make_lowest_id(now - timedelta(seconds=1)) < make_id()


def test_filter_choices_are_not_read_from_the_jobs(
    client: Client,
) -> None:
    Queue.objects.create(name="mail")
    make_job(queue="unmet", job_type="gone.away")
    with CaptureQueriesContext(connection) as queries:
        page = read_text(client.get(list_url("job")))
    of_jobs = [query for query in queries if 'FROM "jobqueue_job"' in query["sql"]]
    assert len(of_jobs) == 2, "one counts, one reads the page"
    assert "?queue=mail" in page
    assert "?queue=unmet" not in page
    for name in all_handlers():
        assert f"?job_type={name}" in page


def test_list_of_workers_marks_the_stale_ones(client: Client, settings: Any) -> None:
    settings.JOBQUEUE = {"HEARTBEAT_TTL": 60}
    live = make_worker(last_seen_at=timezone.now() - timedelta(seconds=50))
    stale = make_worker(last_seen_at=timezone.now() - timedelta(seconds=70))
    assert find(client, "workerheartbeat", state="stale") == [stale.pk]
    assert find(client, "workerheartbeat", state="running") == [live.pk]
    assert 'jobqueue-bad"' in read_text(client.get(page_url(stale)))
    assert 'jobqueue-bad"' not in read_text(client.get(page_url(live)))
    running = list_url("job", f"?worker_id={live.pk}")
    assert running in client.get(page_url(live)).content.decode()


@pytest.mark.parametrize("model", [Job, DeadJob, WorkerHeartbeat, Queue])
def test_models_are_registered_and_read_only(model: Any) -> None:
    registered = admin.site.get_model_admin(model)
    assert registered.show_full_result_count is False
    assert registered.has_add_permission(None) is False
    assert registered.has_change_permission(None) is False


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"scheduled": True}, "Runs in 59 min"),
        ({"scheduled": True, "attempts": 2, "lease_token": 2}, "attempt 3 of 3"),
        ({"status": "scheduled"}, "Due; the next worker"),
        ({"queue": "mail"}, "no live worker serves that queue"),
        ({"status": "blocked"}, "Blocked until"),
        ({"running": True}, "Another worker will rescue"),
        ({"succeeded": True}, "kept until it is deleted by hand"),
        ({"succeeded": True, "prune_at": timezone.now()}, "at the next prune"),
        (
            {"cancelled": True, "prune_at": timezone.now() + timedelta(days=9)},
            "deleted in 8 d",
        ),
    ],
)
def test_page_says_what_happens_next(
    client: Client, values: dict[str, Any], text: str
) -> None:
    assert text in read_text(client.get(page_url(make_job(**values))))


def test_page_says_what_happens_next_with_live_workers(client: Client) -> None:
    worker = make_worker(queues={"mail": 1})
    waiting = make_job(queue="mail")
    assert "for a free worker" in read_text(client.get(page_url(waiting)))
    running = make_job(running=True, worker_id=worker.pk)
    assert "attempt 1 of 3" in read_text(client.get(page_url(running)))
    Job.objects.filter(pk=running.pk).update(cancel_requested_at=timezone.now())
    page = read_text(client.get(page_url(running)))
    assert "Asked to stop" in page
    assert page_url(worker) in page


def test_page_of_a_dead_job_says_why_it_died(client: Client, rows: Rows) -> None:
    page = read_text(client.get(page_url(rows.dead)))
    assert "Dead: exception." in page
    assert "ValueError: it failed" in page
    assert list_url("deadjob", "?fingerprint=f00") in page


def test_page_leaves_out_what_the_job_does_not_have(client: Client) -> None:
    page = read_text(client.get(page_url(make_job(payload={}))))
    assert "field-payload" in page
    for name in ("args", "result", "tags", "unique_key", "error", "finished_at"):
        assert f"field-{name}" not in page


def test_page_keeps_the_filters_of_the_list_it_came_from(
    client: Client, rows: Rows
) -> None:
    query = "?_changelist_filters=status%3Dscheduled"
    page = client.get(page_url(rows.scheduled) + query)
    assert page_url(rows.scheduled, "cancel") + query in page.content.decode()
    response = client.post(page_url(rows.scheduled, "run") + query, {"confirmed": 1})
    assert response.url == page_url(rows.scheduled) + query


def test_dead_jobs_come_newest_first(client: Client) -> None:
    now = timezone.now()
    older = make_dead_job(died_at=now - timedelta(hours=1)).pk
    newer = make_dead_job(died_at=now).pk
    oldest = make_dead_job(died_at=now - timedelta(hours=2)).pk
    assert find(client, "deadjob") == [newer, older, oldest]
