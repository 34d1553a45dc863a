"""How an exception becomes text that can always be stored.

Recording an end cannot fail: NUL and lone surrogates are stripped, sizes capped, and
whatever the exception's own code does is survived. So its class, name and traceback are
read past its own attributes, and chains and groups only as far as they have an end.
"""

from __future__ import annotations

import hashlib
import re
import traceback
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any

MESSAGE_LIMIT = 4_000
TRACEBACK_LIMIT = 64_000
# The innermost frames of a traceback; as many as Python lets a recursion go.
FRAMES = 1_000
# Exceptions in a chain and its groups that are shown as Python shows them.
WHOLE = 100
# Of more, or of what cannot be shown so: links of the chain, members of a group.
PARTS = 15
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
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
    name = name_class(type(error))
    return Failure(
        exception_class=clean_text(name, limit=200),
        message=clean_text(_read_text(error)),
        traceback=_read_traceback(error),
        fingerprint=_fingerprint(error, name, job_type),
    )


def describe_end(name: str, message: str, *, job_type: str, place: str = "") -> Failure:
    """Describe an end that raised nothing, as the supervisor saw it from outside.

    `name` stands where the class of an exception would, `place` where it came from.
    """
    return Failure(
        exception_class=name,
        message=clean_text(message),
        fingerprint=_hash(job_type, name, place),
    )


def find_packages(error: BaseException | None) -> set[str]:
    """Return the packages that an error's class and its bases come from."""
    return {_read_module(cls).partition(".")[0] for cls in _get_mro(type(error))}


# What Python itself knows: metaclasses and properties may say anything, or raise.
_get_mro: Any = vars(type)["__mro__"].__get__
_get_module: Any = vars(type)["__module__"].__get__
_get_qualname: Any = vars(type)["__qualname__"].__get__
_get_traceback: Any = vars(BaseException)["__traceback__"].__get__


def name_class(cls: type) -> str:
    """Return the name under which an exception's class is stored."""
    name, module = _copy(_get_qualname(cls)), _read_module(cls)
    return name if module in {"", "builtins"} else f"{module}.{name}"


def _read_module(cls: type) -> str:
    try:
        module = _get_module(cls)
    except AttributeError:
        return ""
    return module if type(module) is str else ""


def _read_text(value: object) -> str:
    try:
        return _copy(str(value))
    # Only here and in worker/attempt.py: the value is the user's code.
    except BaseException:
        name = name_class(type(value)).rpartition(".")[2]
        return f"(the message of this {name} could not be read)"


def _copy(text: str) -> str:
    """Return a text that is nothing but a text: a subclass may raise at any touch."""
    return str.__str__(text)


def _read_traceback(error: BaseException) -> str:
    try:
        text = _format_whole(error) if _is_small(error) else _format_parts(error)
    except BaseException:
        text = _format_parts(error)
    if len(text) > TRACEBACK_LIMIT:
        # The end names the error, the beginning where it came from: either may be long.
        half = TRACEBACK_LIMIT // 2 - 2
        text = f"{text[:half]}\n…\n{text[-half:]}"
    return clean_text(text, limit=TRACEBACK_LIMIT)


def _is_small(error: BaseException) -> bool:
    """Tell whether chain and groups end soon; properties may make them endless."""
    # By id, and kept: what a property makes would else be gone, its id used again.
    seen: dict[int, BaseException] = {}
    waiting = [error]
    while waiting and len(seen) <= WHOLE:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        linked = (one.__cause__, one.__context__)
        waiting += [other for other in linked if other is not None]
        if issubclass(type(one), BaseExceptionGroup):
            waiting += islice(one.exceptions, WHOLE + 1)  # type: ignore[attr-defined]
    return len(seen) <= WHOLE


def _format_whole(error: BaseException) -> str:
    shown = traceback.TracebackException.from_exception(
        error, limit=-FRAMES, compact=True
    )
    # Piece by piece: each message of a chain may have megabytes.
    return "".join(clean_text(piece) for piece in shown.format())


def _format_parts(error: BaseException) -> str:
    """Show the end of a chain that is too long, or whose exceptions resist."""
    links = [error]
    text = _format_link(error)
    while len(links) < PARTS:
        cause, sentence = _find_cause(links[-1])
        if cause is None or any(cause is link for link in links):
            break
        links.append(cause)
        text = f"{_format_link(cause)}{sentence}{text}"
    return text


def _find_cause(error: BaseException) -> tuple[BaseException | None, str]:
    try:
        cause, sentence = error.__cause__, _CAUSE
        if cause is None and not error.__suppress_context__:
            cause, sentence = error.__context__, _CONTEXT
    except BaseException:
        return None, ""
    return (cause if issubclass(type(cause), BaseException) else None), sentence


def _format_link(error: BaseException) -> str:
    start: TracebackType | None = _get_traceback(error)
    try:
        frames = "".join(traceback.format_tb(start, limit=-FRAMES))
    except BaseException:
        # The source cannot be read, or its file has a name that no file can have.
        frames = "".join(
            f'  File "{place}", line {line}, in {function}\n'
            for place, line, function in _walk_frames(start, limit=FRAMES)
        )
    lines = [_format_error(error), *map(_format_error, _find_members(error))]
    return f"Traceback (most recent call last):\n{frames}" + "  | ".join(lines)


def _format_error(error: BaseException) -> str:
    return f"{name_class(type(error))}: {clean_text(_read_text(error))}\n"


def _find_members(error: BaseException) -> list[BaseException]:
    """Return the first exceptions of a group."""
    if not issubclass(type(error), BaseExceptionGroup):
        return []
    try:
        return list(islice(error.exceptions, PARTS))  # type: ignore[attr-defined]
    except BaseException:
        return []


def _walk_frames(
    start: TracebackType | None, *, limit: int
) -> Iterable[tuple[str, int, str]]:
    """Return (file, line, function) of the innermost frames, the last one last."""
    frames: deque[TracebackType] = deque(maxlen=limit)
    while start is not None:
        frames.append(start)
        start = start.tb_next
    for frame in frames:
        code = frame.tb_frame.f_code
        yield _copy(code.co_filename), frame.tb_lineno, _copy(code.co_name)


def _fingerprint(error: BaseException, name: str, job_type: str) -> str:
    """Hash where the error came from: the same bug keeps it over messages and lines."""
    frames = _walk_frames(_get_traceback(error), limit=5)
    places = [f"{file.rpartition('/')[2]}:{function}" for file, _, function in frames]
    return _hash(job_type, name, *places)


def _hash(*parts: str) -> str:
    text = "|".join(parts)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
