"""Every page and action × superuser, viewer, staff without permission, anonymous."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_jobqueue.models import DeadJob, Job
from tests.admin.pages import act, confirm, list_url, page_url
from tests.admin.rows import MODELS, Rows, give_permission

# The status for each user: 302 redirects to the login page.
SEES = {"superuser": 200, "viewer": 200, "outsider": 403, "anonymous": 302}
ACTS = {"superuser": 302, "viewer": 403, "outsider": 403, "anonymous": 302}
USERS = list(SEES)
ACTIONS = {
    "cancel": ("pending", {}),
    "run": ("scheduled", {}),
    "reschedule": ("pending", {"delay": "5", "unit": "minutes"}),
    "move": ("pending", {"queue": "other"}),
    "run_again": ("succeeded", {}),
    "delete": ("succeeded", {}),
    "requeue": ("dead", {"attempts": "reset"}),
}
# Action → the permission it needs besides the one to view the job.
NEEDS = {
    ("pending", "cancel"): "cancel_job",
    ("scheduled", "run"): "run_job",
    ("pending", "reschedule"): "reschedule_job",
    ("pending", "move"): "move_job",
    ("succeeded", "run_again"): "add_job",
    ("succeeded", "delete"): "delete_job",
    ("dead", "requeue"): "requeue_deadjob",
    ("dead", "delete"): "delete_deadjob",
}


def freeze() -> list[Any]:
    return [list(Job.objects.order_by("pk").values()), list(DeadJob.objects.values())]


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("model", MODELS)
def test_list_needs_the_view_permission(
    clients: dict[str, Client], rows: Rows, user: str, model: str
) -> None:
    response = clients[user].get(list_url(model))
    assert response.status_code == SEES[user]
    if user == "anonymous":
        assert response.url.startswith("/admin/login/")


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("page", ["change", "history"])
@pytest.mark.parametrize(
    "row",
    [
        "pending",
        "scheduled",
        "running",
        "succeeded",
        "dead",
        "attempt",
        "worker",
        "queue",
    ],
)
@pytest.mark.slow
def test_page_needs_the_view_permission(
    clients: dict[str, Client], rows: Rows, user: str, page: str, row: str
) -> None:
    response = clients[user].get(page_url(getattr(rows, row), page))
    assert response.status_code == SEES[user]


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("row", ["pending", "dead", "attempt", "worker", "queue"])
@pytest.mark.slow
def test_form_never_saves_or_adds(
    clients: dict[str, Client], rows: Rows, user: str, row: str
) -> None:
    before = freeze()
    record = getattr(rows, row)
    refused = 302 if user == "anonymous" else 403
    changed = clients[user].post(page_url(record), {"queue": "other"})
    assert changed.status_code == refused
    add = list_url(record._meta.model_name) + "add/"
    assert clients[user].get(add).status_code == refused
    assert clients[user].post(add, {}).status_code == refused
    assert freeze() == before


@pytest.mark.parametrize("row", ["attempt", "worker", "queue"])
def test_attempts_workers_and_queues_cannot_be_deleted(
    client: Client, rows: Rows, row: str
) -> None:
    record = getattr(rows, row)
    assert client.post(page_url(record, "delete"), {"post": "yes"}).status_code == 403
    assert type(record).objects.filter(pk=record.pk).exists()


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("action", ACTIONS)
def test_button_acts_only_with_permission(
    clients: dict[str, Client], rows: Rows, user: str, action: str
) -> None:
    row, values = ACTIONS[action]
    before = freeze()
    url = page_url(getattr(rows, row), action)
    response = clients[user].post(url, {"confirmed": 1, **values})
    assert response.status_code == ACTS[user]
    assert (freeze() != before) == (user == "superuser")
    # Both the old job and its copy have a history.
    entries = 2 if action == "run_again" else 1
    assert LogEntry.objects.count() == (entries if user == "superuser" else 0)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.slow
def test_list_offers_and_runs_actions_only_with_permission(
    clients: dict[str, Client], rows: Rows, user: str, action: str
) -> None:
    row, values = ACTIONS[action]
    record = getattr(rows, row)
    model = record._meta.model_name
    name = "delete_selected" if action == "delete" else action
    before = freeze()
    page = clients[user].get(list_url(model)).content.decode()
    assert (f'<option value="{name}">' in page) == (user == "superuser")
    confirm(clients[user], model, name, record.pk, **values)
    assert (freeze() != before) == (user == "superuser")


@pytest.mark.parametrize("action", ACTIONS)
def test_get_of_an_action_asks_and_changes_nothing(
    client: Client, rows: Rows, action: str
) -> None:
    row, values = ACTIONS[action]
    before = freeze()
    url = page_url(getattr(rows, row), action)
    response = client.get(url, {"confirmed": 1, **values})
    assert response.status_code == 200
    assert b'name="confirmed"' in response.content
    assert freeze() == before
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(("row", "action"), NEEDS)
@pytest.mark.slow
def test_permission_allows_its_own_action_and_no_other(
    rows: Rows, django_user_model: Any, row: str, action: str
) -> None:
    client = Client()
    codename = NEEDS[row, action]
    give_permission(client, django_user_model, "view_job", "view_deadjob", codename)
    for other_row, other in NEEDS:
        values = {"confirmed": 1, **ACTIONS[other][1]}
        before = freeze()
        response = client.post(page_url(getattr(rows, other_row), other), values)
        is_own = (other_row, other) == (row, action)
        assert response.status_code == (302 if is_own else 403)
        assert (freeze() != before) == is_own


@pytest.mark.parametrize(("row", "action"), NEEDS)
@pytest.mark.slow
def test_permission_to_act_does_not_allow_to_see(
    rows: Rows, django_user_model: Any, row: str, action: str
) -> None:
    client = Client()
    give_permission(client, django_user_model, NEEDS[row, action])
    record = getattr(rows, row)
    assert client.get(page_url(record)).status_code == 403
    assert client.get(page_url(record, action)).status_code == 403
    assert client.post(page_url(record, action), {"confirmed": 1}).status_code == 403


def test_page_shows_only_buttons_the_user_may_use(
    clients: dict[str, Client], rows: Rows
) -> None:
    url = page_url(rows.scheduled, "cancel")
    assert url in clients["superuser"].get(page_url(rows.scheduled)).content.decode()
    assert url not in clients["viewer"].get(page_url(rows.scheduled)).content.decode()


def test_attempts_need_their_own_permission(
    rows: Rows, clients: dict[str, Client], django_user_model: Any
) -> None:
    client = Client()
    give_permission(client, django_user_model, "view_deadjob")
    assert b"Traceback" not in client.get(page_url(rows.dead)).content
    assert b"Traceback" in clients["viewer"].get(page_url(rows.dead)).content


@pytest.mark.parametrize("action", ACTIONS)
def test_post_without_the_csrf_token_is_refused(
    rows: Rows, django_user_model: Any, action: str
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(django_user_model.objects.create_superuser("root"))
    row, values = ACTIONS[action]
    record = getattr(rows, row)
    before = freeze()
    url = page_url(record, action)
    assert client.post(url, {"confirmed": 1, **values}).status_code == 403
    name = "delete_selected" if action == "delete" else action
    model = record._meta.model_name
    assert act(client, model, name, record.pk).status_code == 403
    assert confirm(client, model, name, record.pk, **values).status_code == 403
    assert freeze() == before


def test_post_with_the_csrf_token_of_the_page_is_accepted(
    rows: Rows, django_user_model: Any
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(django_user_model.objects.create_superuser("root"))
    page = client.get(page_url(rows.scheduled))
    token = str(page.context["csrf_token"])
    response = client.post(
        page_url(rows.scheduled, "cancel"),
        {"confirmed": 1, "csrfmiddlewaretoken": token},
    )
    assert response.status_code == 302
    rows.scheduled.refresh_from_db()
    assert rows.scheduled.status == "cancelled"
