"""Tables: aligned text for people, most of it readable at 80 to 100 columns.

All text from the database passes clean(): a payload or an error must not send control
sequences to the reader's terminal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

GAP = "  "
NOTHING = "-"


def format_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    right: Sequence[str] = (),
    style: Any = None,
) -> str:
    """Return aligned columns; those named in `right` are aligned right."""
    cells = [[_format_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    lines = [
        GAP.join(
            cell.rjust(width) if header in right else cell.ljust(width)
            for header, cell, width in zip(headers, line, widths, strict=True)
        ).rstrip()
        for line in [headers, *cells]
    ]
    if style is not None:
        lines[0] = style.MIGRATE_HEADING(lines[0])
    return "\n".join(lines)


def format_fields(fields: Sequence[tuple[str, Any]]) -> str:
    """Return `name  value` lines; values of None are left out."""
    shown = [(name, _format_cell(value)) for name, value in fields if value is not None]
    width = max(len(name) for name, _ in shown)
    return "\n".join(f"{name.ljust(width)}{GAP}{value}" for name, value in shown)


def format_count(number: int, noun: str = "job") -> str:
    """Return a number with its noun: 1 job, 2 jobs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_json(value: Any) -> str:
    """Return a JSON value over several lines."""
    return clean_lines(json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True))


def format_age(age: timedelta | None) -> str:
    """Return a duration with one unit: 850 ms, 14 s, 3 min, 5 h, 12 d."""
    if age is None:
        return NOTHING
    seconds = max(0.0, age.total_seconds())
    for limit, factor, unit in ((1, 1000, "ms"), (100, 1, "s")):
        if seconds < limit:
            return f"{seconds * factor:.0f} {unit}"
    for limit, divisor, unit in ((6000, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def format_moment(moment: datetime | None) -> str | None:
    """Return a time in TIME_ZONE."""
    if moment is None:
        return None
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"


def format_bytes(number: int) -> str:
    """Return a size in megabytes."""
    return f"{number / 1_000_000:.0f} MB" if number else NOTHING


def clean(text: str) -> str:
    """Return the text on one line, with every control character escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def clean_lines(text: str) -> str:
    """Return the text with its lines and tabs, other control characters escaped."""
    return "\n".join(clean(line.expandtabs()) for line in text.split("\n"))


def shorten(text: str, limit: int = 60) -> str:
    """Return the first line of a text, cut to fit a column."""
    line = text.strip().partition("\n")[0].rstrip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def indent(text: str, by: str = GAP) -> str:
    """Return the text with each line indented."""
    return "\n".join(f"{by}{line}".rstrip() for line in text.split("\n"))


def _format_cell(value: Any) -> str:
    if value is None or value == "":
        return NOTHING
    return f"{value:,}" if type(value) is int else clean(str(value))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
