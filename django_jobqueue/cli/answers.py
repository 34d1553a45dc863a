"""Answers: what a sub-command prints, for people and for scripts, and its exit code.

Exit codes: 0 done; 1 not found, nothing matched, or only a part could be done; 2 a
mistake in the call; 75 the database cannot be reached (EX_TEMPFAIL of sysexits.h).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

NOT_ALL = 1
USAGE = 2
UNREACHABLE = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a sub-command. With a `problem` the exit code is 1."""

    document: dict[str, Any]
    text: str
    problem: str = ""


class Refusal(Exception):
    """The sub-command did nothing; the message says why."""

    def __init__(self, message: str, *, code: int = NOT_ALL) -> None:
        super().__init__(message)
        self.code = code


def dump(document: dict[str, Any]) -> str:
    """Return the document of --json: times in UTC, durations in seconds."""
    return json.dumps(document, indent=2, ensure_ascii=False, default=_encode)


def _encode(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
    raise TypeError(f"--json cannot encode {value!r}")
