"""Addresses of the admin pages, and readers of their content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from django.test import Client
from django.urls import reverse

HOME = "/admin/jobqueue/"


def list_url(model: str, query: str = "") -> str:
    return reverse(f"admin:jobqueue_{model}_changelist") + query


def page_url(row: Any, page: str = "change") -> str:
    name = f"admin:jobqueue_{row._meta.model_name}_{page}"
    return reverse(name, args=[str(row.pk).replace("_", "_5F")])


def act(client: Client, model: str, action: str, *ids: Any, **values: Any) -> Any:
    """Choose an action in a list and submit it."""
    data = {"action": action, "index": 0, "_selected_action": [str(id) for id in ids]}
    return client.post(list_url(model), {**data, **values}, follow=True)


def confirm(client: Client, model: str, action: str, *ids: Any, **values: Any) -> Any:
    """Submit the confirmation page of an action."""
    data = {"action": action, "confirmed": 1, "select_across": 0}
    chosen = {"_selected_action": [str(id) for id in ids]}
    return client.post(list_url(model), {**data, **chosen, **values}, follow=True)


def read_messages(response: Any) -> list[str]:
    return [str(message) for message in response.context["messages"]]


def read_text(response: Any) -> str:
    return re.sub(r"\s+", " ", response.content.decode())


class PageParser(HTMLParser):
    """Collects the elements, attributes and texts of a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def find_links(self) -> Iterator[str]:
        for tag, name, value in self.attributes:
            if tag == "a" and name == "href":
                yield value
