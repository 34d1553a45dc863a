"""Extreme values for a column, by its type; a new column is covered automatically.

On PostgreSQL they are text, which the server converts to the type of the column. On
SQLite a value of any type can be stored in any column.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from django.db import connection
from django.db.models import Field

MEGABYTE = 1 << 20
TEXTS = {
    "empty": "",
    "quotes": "'\"`; DROP TABLE jobqueue_job; --",
    "percent": "%s %(id)s %% {0} {id} \\",
    "bidi": "\u202eright to left\u2066",
    "emoji": "\U0001f9e8" * 12,
    "controls": "\x01\x1b[2J\r\n\t\x7f\x85",
    "blank": "   ",
}
TIMES = {
    "year 1": "0001-01-01 00:00:00",
    "year 9999": "9999-12-31 23:59:59.999999",
}
SERVER_TIMES = {
    "infinity": "infinity",
    "-infinity": "-infinity",
    "year 10000": "10000-01-01 00:00:00+00",
    "last year": "294276-12-31 00:00:00+00",
    "first year": "4713-01-01 00:00:00+00 BC",
    "other zone": "2020-01-01 00:00:00+15:59",
}
INTERVALS = {
    "zero": "0",
    "negative": "-1 second",
    "shortest": "1 microsecond",
    "months": "1000 months",
    "longest": "178000000 years",
    "most negative": "-178000000 years",
}
MICROSECONDS = {"zero": 0, "negative": -1, "longest": 2**63 - 1, "least": -(2**63)}
JSONS = {
    "null": "null",
    "array": "[1, null]",
    "number": "-1",
    "text": '"text"',
    "true": "true",
    "empty object": "{}",
    "strange object": '{"": {"self": [{}]}, "number": null, "%s": "\\u202e"}',
    "infinite number": "1e400",
    "long number": "1" * 5000,
    "deep": "[" * 2000 + "]" * 2000,
    "deep object": '{"a":' * 900 + "1" + "}" * 900,
    "megabyte": f'{{"number": "{"x" * MEGABYTE}"}}',
    "NaN": "NaN",
    "not JSON": "{",
    "lone surrogate": '{"a": "\\ud800"}',
}
UUIDS = {
    "nil": "00000000-0000-0000-0000-000000000000",
    "max": "ffffffff-ffff-ffff-ffff-ffffffffffff",
}
# SQLite stores these in a column of any type.
ANYTHING = {
    "word": "abc",
    "no uuid": "not-a-uuid",
    "no date": "2024-13-45 99:99:99",
    "blob": b"\xff\xfe\x00",
    "empty blob": b"",
    "float": 1.5,
    "infinite float": float("inf"),
    "largest integer": 2**63 - 1,
    "smallest integer": -(2**63),
    "text with NUL": "before\0after",
    "digits": "9" * 40,
}


def list_values(column: Field[Any, Any]) -> dict[str, Any]:
    """Return extreme values for a column, by name; the database may refuse some."""
    values = {"NULL": None, **_list_typed(column)}
    if connection.vendor == "sqlite":
        values |= ANYTHING
    if column.attname == "queue":
        # A blob is the name of a queue that no worker serves: such a job waits.
        values = {name: v for name, v in values.items() if not isinstance(v, bytes)}
    return values


def _list_typed(column: Field[Any, Any]) -> dict[str, Any]:
    is_server = connection.vendor == "postgresql"
    match column.get_internal_type():
        case "CharField":
            return dict(_list_texts(column.max_length or sys.maxsize))
        case "TextField":
            return {**TEXTS, "megabyte": "x" * MEGABYTE}
        case "SmallIntegerField" | "IntegerField" | "BigIntegerField" as kind:
            low, high = connection.ops.integer_field_range(kind)
            return _list_integers(low or -(2**63), high or 2**63 - 1)
        case "DateTimeField" if is_server:
            zoned = {name: f"{text}+00" for name, text in TIMES.items()}
            return zoned | SERVER_TIMES
        case "DateTimeField":
            return TIMES
        case "DurationField":
            return INTERVALS if is_server else MICROSECONDS
        case "JSONField":
            return JSONS
        case "UUIDField" if is_server:
            return UUIDS
        case "UUIDField":
            return {name: text.replace("-", "") for name, text in UUIDS.items()}
        case "BooleanField":
            return {"true": "true" if is_server else 1, "two": "2" if is_server else 2}
        case _:
            return TEXTS


def _list_texts(longest: int) -> Iterator[tuple[str, str]]:
    for name, text in TEXTS.items():
        yield name, text[:longest]
    yield "longest", "y" * longest
    yield "longest of emoji", "\U0001f9e8" * longest
    yield "too long", "y" * (longest + 1)


def _list_integers(low: int, high: int) -> dict[str, int]:
    numbers = {"least": low, "most": high, "zero": 0, "minus one": -1, "one": 1}
    if high < 2**63 - 1 or connection.vendor == "postgresql":
        numbers |= {"one beyond": high + 1, "one below": low - 1}
    return numbers
