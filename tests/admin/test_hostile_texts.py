"""Hostile texts in any field are shown as text: no element, attribute or error."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from django_jobqueue.models import DeadJob, Job
from tests.admin.hostile import MARK, TEXTS, make_hostile_rows
from tests.admin.pages import (
    PageParser,
    act,
    confirm,
    list_url,
    page_url,
)
from tests.admin.rows import MODELS

# Attributes whose value may hold such a text; it must not end the value.
HARMLESS = {"value", "title", "alt", "aria-label"}
# Each is a slice of the corpus; the first runs in every combination.
CHUNKS = [
    # All texts once: Python escapes them, so the database does not matter.
    pytest.param(
        TEXTS[start::8],
        marks=[pytest.mark.slow, pytest.mark.postgresql] if start else [],
    )
    for start in range(8)
]


def check_page(response: Any) -> str:
    """Check that no text became markup; return the visible text."""
    assert response.status_code == 200
    page = PageParser(response.content.decode())
    for tag in page.tags:
        assert MARK not in tag.lower()
    for tag, name, value in page.attributes:
        assert MARK not in name.lower(), (tag, name)
        assert not name.startswith("on"), (tag, name)
        assert name != "style", (tag, value)
        if MARK in value.lower() and name not in HARMLESS:
            # A link may carry a text as an encoded query; other attributes may not.
            assert name == "href", (tag, name, value)
            assert value.startswith(("?", "/admin/jobqueue/")), value
    return "".join(page.texts)


def count_tags(response: Any) -> dict[str, int]:
    tags = PageParser(response.content.decode()).tags
    return {tag: tags.count(tag) for tag in set(tags)}


def test_corpus_has_two_hundred_texts() -> None:
    assert len(TEXTS) == 200
    assert all(MARK in text.lower() for text in TEXTS)


@pytest.mark.parametrize("texts", CHUNKS, ids=range(8))
def test_hostile_texts_come_out_escaped(client: Client, texts: list[str]) -> None:
    rows = make_hostile_rows(texts)
    for model in MODELS:
        assert MARK in check_page(client.get(list_url(model))).lower()
    for row in rows:
        assert MARK in check_page(client.get(page_url(row))).lower()
    for row in rows[:6]:
        check_page(client.get(page_url(row, "history")))


@pytest.mark.parametrize("texts", CHUNKS, ids=range(8))
def test_hostile_texts_come_out_escaped_from_actions(
    client: Client, texts: list[str]
) -> None:
    rows = make_hostile_rows(texts)
    jobs = [row.pk for row in rows if isinstance(row, Job)]
    dead = [row.pk for row in rows if isinstance(row, DeadJob)]
    for action in ("reschedule", "move", "delete_selected"):
        check_page(act(client, "job", action, *jobs))
    check_page(act(client, "deadjob", "requeue", *dead))
    check_page(act(client, "job", "cancel", *jobs))
    for text in texts:
        values = {"queue": text, "priority": text, "delay": text, "run_at": text}
        check_page(confirm(client, "job", "move", jobs[0], **values))
        check_page(confirm(client, "job", "reschedule", jobs[0], **values))
    check_page(confirm(client, "deadjob", "requeue", *dead, attempts="reset"))
    check_page(client.get("/admin/"))
    check_page(client.get(page_url(Job(pk=dead[0]), "history")))


@pytest.mark.parametrize("texts", CHUNKS, ids=range(8))
def test_hostile_queries_come_out_escaped(client: Client, texts: list[str]) -> None:
    names = {
        "job": ["status", "queue", "job_type", "created", "worker_id", "o"],
        "deadjob": ["reason__exact", "queue", "job_type", "fingerprint", "_facets"],
        "workerheartbeat": ["state"],
        "attempt": ["outcome__exact", "p"],
        "queue": ["name"],
    }
    for number, text in enumerate(texts):
        # Every text on the list with the most filters, every fifth on the others.
        for model in MODELS if number % 5 == 0 else ["job"]:
            query = dict.fromkeys(["q", *names[model]], text)
            check_page(client.get(list_url(model), query, follow=True))


@pytest.mark.django_db
def test_page_has_the_same_elements_whatever_it_holds(client: Client) -> None:
    rows = make_hostile_rows([TEXTS[0], f"harmless {MARK}"])
    by_type: dict[type, list[Any]] = {}
    for row in rows:
        by_type.setdefault(type(row), []).append(row)
    for hostile, harmless, *_ in by_type.values():
        pages = [client.get(page_url(row)) for row in (hostile, harmless)]
        assert count_tags(pages[0]) == count_tags(pages[1])
