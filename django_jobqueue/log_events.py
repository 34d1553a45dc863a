"""The messages of the log: a text and named values."""

from __future__ import annotations

from typing import Any


class Event:
    """A log message of a short text and named values, for logfmt and JSON alike."""

    __slots__ = ("fields", "text", "traceback")

    def __init__(self, text: str, **fields: Any) -> None:
        self.text = text
        self.fields = fields
        # Printed below the line by the worker's log formats.
        self.traceback = ""

    def __str__(self) -> str:
        return " ".join([self.text, *map(format_field, self.fields.items())])


def format_field(field: tuple[str, Any]) -> str:
    """Return one `name=value` of a logfmt line."""
    name, value = field
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    if not text or not text.isprintable() or any(c in text for c in ' "='):
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        # No control character reaches the terminal or the next line of the log.
        text = "".join(
            c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
        )
    return f"{name}={text}"
