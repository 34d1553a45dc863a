"""Crafted addresses: no query may end in a server error (500) or leak a row."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_jobqueue.models import DeadJob, Job, Queue
from tests.admin.pages import act, list_url, page_url, read_messages, read_text
from tests.admin.rows import MODELS, Rows, give_permission, make_attempt
from tests.factories import make_dead_job, make_job, make_worker

QUERIES = [
    "status=%00",
    "reason__exact=%00",
    "outcome__exact=a%00b",
    "fingerprint=%00",
    "job_id=%00",
    "name=%00",
    "queue=%00&job_type=%00&created=%00&worker_id=%00&state=%00",
    "q=%00",
    "q=%FF%FE&queue=%ED%A0%80",
    "error__regex=(",
    "payload__x__y=1",
    "payload__contains=%7B",
    "tags__contains=x",
    "created_at__year=99999999999",
    "created_at__gte=yesterday",
    "finished_at__week_day=x",
    "timeout__gt=x",
    "id__in=1,2,3",
    "id=9" + "9" * 40,
    "number=9" + "9" * 40,
    "pid__gt=9" + "9" * 40,
    "queues__contains=%00",
    "no_such_field=1",
    "job_type__no_such_lookup=1",
    "reason__isnull=x",
    "reason__exact=a&reason__exact=b",
    "job_id=not-an-id",
    "p=-1",
    "p=9" + "9" * 5000,
    "p=%00",
    "o=9.9.-9",
    "o=%00",
    "all=%00",
    "e=1&error__regex=(",
    "_facets=1&_popup=%00",
    "_changelist_filters=%00",
    "=&&==&%",
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query[:30])
def test_crafted_query_is_never_a_server_error(
    client: Client, rows: Rows, query: str
) -> None:
    for model in MODELS:
        response = client.get(list_url(model, f"?{query}"), follow=True)
        assert response.status_code == 200, model


@pytest.mark.parametrize("id", ["%00", "a%00b", "_00", "9" * 60, "%FF", "..", "_3A"])
def test_crafted_id_in_the_path_is_never_a_server_error(
    client: Client, rows: Rows, id: str
) -> None:
    for model in MODELS:
        for page in ("change", "history", "delete"):
            url = list_url(model) + f"{id}/{page}/"
            assert client.get(url, follow=True).status_code in (200, 403, 404)
            assert client.post(url, follow=True).status_code in (200, 403, 404)


@pytest.mark.parametrize("id", ["garbage", "\0", "9" * 60, ""])
def test_action_on_a_crafted_id_changes_nothing(
    client: Client, rows: Rows, id: str
) -> None:
    for model, action in (("job", "cancel"), ("deadjob", "requeue")):
        assert act(client, model, action, id).status_code == 200
        values = {"select_across": "\0", "index": "\0"}
        assert act(client, model, action, id, **values).status_code == 200
    assert not LogEntry.objects.exists()


def test_filter_that_the_page_does_not_offer_is_not_applied(
    client: Client, rows: Rows
) -> None:
    response = client.get(list_url("deadjob", "?error__startswith=V"))
    assert response.url == list_url("deadjob", "?e=1")


@pytest.mark.parametrize("term", ["x " * 2_000, "x" * 3_000, '"a b" ' * 11])
def test_long_search_finds_nothing_and_says_so(
    client: Client, rows: Rows, term: str
) -> None:
    for model in MODELS:
        with CaptureQueriesContext(connection) as queries:
            response = client.get(list_url(model), {"q": term})
        assert response.status_code == 200
        assert "10 words" in read_messages(response)[0]
        assert max(len(query["sql"]) for query in queries) < 5_000
        if model != "queue":
            assert response.context["cl"].result_count == 0


def test_search_takes_ten_words(client: Client) -> None:
    found = make_job(unique_key="x" * 255)
    response = client.get(list_url("job"), {"q": " ".join(["testapp.add"] * 9)})
    assert [job.pk for job in response.context["cl"].result_list] == [found.pk]
    response = client.get(list_url("job"), {"q": f"key:{found.unique_key}"})
    assert [job.pk for job in response.context["cl"].result_list] == [found.pk]


def answers(client: Client, record: Any) -> list[tuple[int, str]]:
    """Return status and redirect of each page of one record."""
    found = []
    for page in ("change", "history", "delete"):
        response = client.get(page_url(record, page))
        url = getattr(response, "url", "").replace(str(record.pk), "ID")
        found.append((response.status_code, url))
    return found


@pytest.mark.parametrize("model", [Job, DeadJob])
def test_staff_without_permission_cannot_learn_which_ids_exist(
    clients: dict[str, Client], rows: Rows, model: Any
) -> None:
    expected = answers(clients["outsider"], model(pk=uuid4()))
    assert {status for status, _ in expected} == {403}
    for record in (rows.pending, rows.dead):
        assert answers(clients["outsider"], model(pk=record.pk)) == expected


def test_history_of_any_row_needs_the_permission_to_view_it(
    clients: dict[str, Client], rows: Rows
) -> None:
    for row in (rows.attempt, rows.worker, rows.queue):
        for id in (row.pk, "0"):
            url = page_url(type(row)(pk=id), "history")
            assert clients["outsider"].get(url).status_code == 403


def test_viewer_of_jobs_alone_is_not_redirected_to_dead_jobs(
    rows: Rows, django_user_model: Any
) -> None:
    client = Client()
    give_permission(client, django_user_model, "view_job")
    expected = client.get(page_url(Job(pk=uuid4())))
    found = client.get(page_url(Job(pk=rows.dead.pk)))
    assert (found.status_code, found.url) == (expected.status_code, expected.url)


def test_viewer_of_dead_jobs_alone_is_redirected_to_the_dead_job(
    rows: Rows, django_user_model: Any
) -> None:
    client = Client()
    give_permission(client, django_user_model, "view_deadjob")
    assert client.get(page_url(Job(pk=rows.dead.pk))).url == page_url(rows.dead)
    assert client.get(page_url(rows.pending)).status_code == 403


def test_requeue_redirects_to_the_list_without_permission_to_view_jobs(
    rows: Rows, django_user_model: Any
) -> None:
    client = Client()
    holder = make_job(unique_key="taken")
    stays = make_dead_job(unique_key="taken")
    give_permission(client, django_user_model, "view_deadjob", "requeue_deadjob")
    values = {"confirmed": 1, "attempts": "reset"}
    response = client.post(page_url(rows.dead, "requeue"), values)
    assert response.url == list_url("deadjob")
    response = client.post(page_url(stays, "requeue"), values, follow=True)
    assert str(holder.pk) not in response.content.decode()


def test_names_of_workers_need_the_permission_to_view_workers(
    clients: dict[str, Client], django_user_model: Any
) -> None:
    worker = make_worker(name="secret-name", host="secret-host")
    job = make_job(running=True, worker_id=worker.pk, finished_by=worker.pk)
    dead = make_dead_job(finished_by=worker.pk)
    attempts = [make_attempt(record, worker_id=worker.pk) for record in (job, dead)]
    client = Client()
    names = ("view_job", "view_deadjob", "view_attempt", "view_queue")
    give_permission(client, django_user_model, *names)
    lists = [list_url(model) for model in ("job", "deadjob", "attempt", "queue")]
    lists.append(list_url("job", f"?worker_id={worker.pk}"))
    for url in [*lists, *map(page_url, [job, dead, *attempts])]:
        page = client.get(url).content.decode()
        assert "secret" not in page, url
        assert page_url(worker) not in page, url
    for row in (job, dead, attempts[0]):
        assert str(worker.pk) in client.get(page_url(row)).content.decode()
        page = clients["viewer"].get(page_url(row)).content.decode()
        assert "secret-name" in page
        assert page_url(worker) in page


BIDI = "a\u202eb\x07c\u2066\u200f"


def test_titles_escape_invisible_characters(client: Client) -> None:
    worker = make_worker(name=BIDI)
    dead = make_dead_job(job_type=BIDI)
    job = make_job(job_type=BIDI, queue=BIDI)
    rows = [worker, job, dead, make_attempt(job), Queue.objects.create(name=BIDI)]
    urls = [list_url(model) for model in MODELS]
    urls += [page_url(row, page) for row in rows for page in ("change", "history")]
    urls += [page_url(job, "cancel"), page_url(job, "delete"), "/admin/"]
    client.post(page_url(job, "move"), {"confirmed": 1, "queue": "mail"})
    for url in urls:
        page = client.get(url).content.decode()
        for character in "\u202e\x07\u2066\u200f":
            assert character not in page, (url, character)
    assert "a\\u202eb\\u0007c" in read_text(client.get(page_url(job)))


def test_message_about_a_missing_row_escapes_invisible_characters(
    client: Client,
) -> None:
    response = client.get(list_url("queue") + "a%E2%80%AEb/change/", follow=True)
    assert "a\\u202eb" in read_messages(response)[0]


def test_chosen_error_is_shown_as_a_filter(client: Client) -> None:
    dead = make_dead_job(fingerprint="f00", error="ValueError: it\u202e failed")
    make_dead_job(fingerprint="ba5")
    make_dead_job(fingerprint="ba5")
    url = list_url("deadjob", "?fingerprint=f00")
    page = client.get(url)
    assert page.context["cl"].has_active_filters
    [chosen] = [
        choice["display"]
        for spec in page.context["cl"].filter_specs
        if spec.title == "error"
        for choice in spec.choices(page.context["cl"])
        if choice["selected"]
    ]
    assert chosen == "ValueError: it\\u202e failed"
    dead.requeue()
    page = client.get(url)
    assert page.context["cl"].has_active_filters
    assert "f00" in read_text(page)
    assert "By error" not in read_text(client.get(list_url("deadjob")))


def test_chosen_job_is_shown_as_a_filter_of_attempts(
    client: Client, rows: Rows
) -> None:
    page = client.get(list_url("attempt", f"?job_id={rows.dead.pk}"))
    assert [row.pk for row in page.context["cl"].result_list] == [rows.attempt.pk]
    assert page.context["cl"].has_active_filters
    other = client.get(list_url("attempt", f"?job_id={uuid4()}"))
    assert other.context["cl"].result_count == 0
