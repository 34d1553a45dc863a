"""Search in the lists of jobs: whole values, so that an index or a short list helps.

A part of a job type is looked up among the registered handlers, not in the table.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils.text import smart_split, unescape_string_literal
from django.utils.translation import gettext_lazy as _

from ..registry import all_handlers

HELP = _(
    "An id, a job type or a part of one, a queue, or a unique key. "
    "type:…, queue:… and key:… look in one place only."
)


def search_records(rows: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Return the jobs that match every word of a term."""
    for word in smart_split(term):
        rows = rows.filter(_match(_unquote(word)))
    return rows


def read_id(text: str) -> UUID | None:
    """Return the UUID that a text is, or None."""
    try:
        return UUID(text)
    except ValueError:
        return None


def _match(word: str) -> Q:
    if (id := read_id(word)) is not None:
        return Q(pk=id)
    place, _colon, value = word.partition(":")
    match place, value:
        case "type", str(value) if value:
            return _match_type(value)
        case "queue", str(value) if value:
            return Q(queue=value)
        case "key", str(value) if value:
            return Q(unique_key=value)
        case _:
            return _match_type(word) | Q(queue=word) | Q(unique_key=word)


def _match_type(word: str) -> Q:
    low = word.lower()
    names = [name for name in all_handlers() if low in name.lower()]
    return Q(job_type__in=[word, *names])


def _unquote(word: str) -> str:
    if len(word) > 1 and word[0] in "\"'" and word[0] == word[-1]:
        return unescape_string_literal(word)
    return word
