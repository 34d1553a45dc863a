"""Search in the lists: short terms, whole values where an index can find them.

A part of a job type is looked up among the registered handlers, not in the table.
"""

from __future__ import annotations

from uuid import UUID

from django.db.models import Q
from django.utils.text import smart_split, unescape_string_literal
from django.utils.translation import gettext_lazy as _

from ..registry import all_handlers

# Each word adds a condition: Django took 45 s to build a query of 2,000 words.
MAX_WORDS = 10
# A unique key has up to 255 characters.
MAX_CHARACTERS = 500

HELP = _(
    "An id, a job type or a part of one, a queue, or a unique key. "
    "type:…, queue:… and key:… search one column only."
)


class SearchTooLong(Exception):
    """The search term has more words or characters than a list accepts."""


def split_term(term: str) -> list[str]:
    """Return the words of a search term, quoted ones without their quotes.

    Raises SearchTooLong. Dropping words instead would match more rows than asked for,
    and an action may apply to all that match.
    """
    if len(term) > MAX_CHARACTERS:
        raise SearchTooLong
    words = [_unquote(word) for word in smart_split(term)]
    if len(words) > MAX_WORDS:
        raise SearchTooLong
    return words


def match_record(word: str) -> Q:
    """Return the condition for jobs and dead jobs that match one word."""
    if (id := read_id(word)) is not None:
        return Q(pk=id)
    column, _colon, value = word.partition(":")
    match column, value:
        case "type", str(value) if value:
            return _match_type(value)
        case "queue", str(value) if value:
            return Q(queue=value)
        case "key", str(value) if value:
            return Q(unique_key=value)
        case _:
            return _match_type(word) | Q(queue=word) | Q(unique_key=word)


def read_id(text: str) -> UUID | None:
    """Return the UUID that a text is, or None."""
    try:
        return UUID(text)
    except ValueError:
        return None


def _match_type(word: str) -> Q:
    low = word.lower()
    names = [name for name in all_handlers() if low in name.lower()]
    return Q(job_type__in=[word, *names])


def _unquote(word: str) -> str:
    if len(word) > 1 and word[0] in "\"'" and word[0] == word[-1]:
        return unescape_string_literal(word)
    return word
