"""How an exception becomes text that can always be stored.

Recording an end cannot fail: NUL and lone surrogates are stripped, sizes capped, and an
exception whose own __str__ raises is described by its class alone.
"""

from __future__ import annotations

import hashlib
import re
import traceback
from dataclasses import dataclass

MESSAGE_LIMIT = 4_000
TRACEBACK_LIMIT = 64_000
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is kept of the exception that ended an attempt."""

    exception_class: str = ""
    message: str = ""
    traceback: str = ""
    fingerprint: str = ""

    @property
    def short(self) -> str:
        """The one-line form kept in Job.error and DeadJob.error."""
        name = self.exception_class.rpartition(".")[2]
        return ": ".join(part for part in (name, self.message) if part)[:MESSAGE_LIMIT]


# Written when the database refuses even the cleaned text.
UNSTORABLE = Failure(message="The error could not be stored.")


def clean_text(text: str, *, limit: int = MESSAGE_LIMIT) -> str:
    """Return text that every database takes, at most `limit` characters long."""
    text = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def clean_reason(reason: object) -> str:
    """Return what a handler gave as its reason, whatever it is, as storable text."""
    return "" if reason is None else clean_text(_read_text(reason))


def describe_exception(error: BaseException, *, job_type: str = "") -> Failure:
    """Describe an exception; never raises, whatever the exception does."""
    name = _name_class(type(error))
    return Failure(
        exception_class=clean_text(name, limit=200),
        message=clean_text(_read_text(error)),
        traceback=_read_traceback(error),
        fingerprint=_fingerprint(error, name, job_type),
    )


def _name_class(cls: type) -> str:
    name = cls.__qualname__
    return name if cls.__module__ == "builtins" else f"{cls.__module__}.{name}"


def _read_text(value: object) -> str:
    try:
        return str(value)
    # Only here and in worker/attempt.py: the value is the user's code.
    except BaseException:
        return f"(the message of this {type(value).__name__} could not be read)"


def _read_traceback(error: BaseException) -> str:
    try:
        text = "".join(traceback.format_exception(error, limit=100))
    except BaseException:
        text = "".join(traceback.format_tb(error.__traceback__, limit=100))
    if len(text) > TRACEBACK_LIMIT:
        # The end names the error, the beginning where it came from: either may be long.
        half = TRACEBACK_LIMIT // 2 - 2
        text = f"{text[:half]}\n…\n{text[-half:]}"
    return clean_text(text, limit=TRACEBACK_LIMIT)


def _fingerprint(error: BaseException, name: str, job_type: str) -> str:
    """Hash where the error came from: the same bug keeps it over messages and lines."""
    frames = traceback.StackSummary.extract(
        traceback.walk_tb(error.__traceback__), limit=-5, lookup_lines=False
    )
    place = [f"{frame.filename.rpartition('/')[2]}:{frame.name}" for frame in frames]
    text = "|".join([job_type, name, *place])
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
