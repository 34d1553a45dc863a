"""Turns an exception into text that every database can store.

Recording an end cannot fail: NUL and lone surrogates are replaced, sizes are capped,
and errors in the exception's own code are caught. Its class, name and traceback are
read with the descriptors of `type` and `BaseException`, because properties may hide
them. Endless chains and groups are cut off.
"""

from __future__ import annotations

import hashlib
import re
import threading
import traceback
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, TypeGuard, TypeVar

MESSAGE_LIMIT = 4_000
TRACEBACK_LIMIT = 64_000
# The innermost frames of a traceback; Python's default recursion limit.
MAX_FRAMES = 1_000
# Up to this many exceptions in chain and groups, Python's own format is used.
MAX_EXCEPTIONS = 100
# Above that: the links of the chain, and the members of a group, that are shown.
MAX_PARTS = 15

E = TypeVar("E", bound=BaseException)

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What is stored of the exception that ended an attempt."""

    exception_class: str = ""
    message: str = ""
    traceback: str = ""
    fingerprint: str = ""

    @property
    def short(self) -> str:
        """The one-line form stored in Job.error and DeadJob.error."""
        name = self.exception_class.rpartition(".")[2]
        return ": ".join(part for part in (name, self.message) if part)[:MESSAGE_LIMIT]


# Stored if the database refuses the cleaned text too.
UNSTORABLE = Failure(message="The error could not be stored.")


def clean_text(text: str, *, limit: int = MESSAGE_LIMIT) -> str:
    """Return text that every database can store, at most `limit` characters."""
    text = _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def clean_reason(reason: object) -> str:
    """Return a handler's reason, which may be any object, as storable text."""
    return "" if reason is None else clean_text(_read_text(reason))


def describe_exception(error: BaseException, *, job_type: str = "") -> Failure:
    """Describe an exception. Never raises, even if the exception's own code does."""
    name = name_class(type(error))
    return Failure(
        exception_class=clean_text(name, limit=200),
        message=clean_text(_read_text(error)),
        traceback=_read_traceback(error),
        fingerprint=_fingerprint(error, name, job_type),
    )


def describe_end(name: str, message: str, *, job_type: str, place: str = "") -> Failure:
    """Describe an end without an exception, such as a crash the supervisor saw.

    `name` takes the place of the exception's class; `place` is hashed in place of the
    frames.
    """
    return Failure(
        exception_class=name,
        message=clean_text(message),
        fingerprint=_hash(job_type, name, place),
    )


def is_kind(
    error: BaseException | None, kinds: type[E] | tuple[type[E], ...]
) -> TypeGuard[E]:
    """Tell whether an error is of these classes, as `except` does.

    isinstance() would read the error's __class__, which may be wrong or raise.
    """
    return issubclass(type(error), kinds)


def find_packages(error: BaseException | None) -> set[str]:
    """Return the top-level packages of an error's class and its base classes."""
    return {_read_module(cls).partition(".")[0] for cls in _get_mro(type(error))}


class KeptException:
    """What an attempt raised, on its way to the receivers of a signal.

    Freed in a separate thread, whether it was sent or not: it may hold objects whose
    `__del__` does not return.
    """

    __slots__ = ("_error",)

    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    def get(self) -> BaseException | None:
        return self._error

    def free(self) -> None:
        """Free it, in a separate thread."""
        if self._error is None:
            return
        other = KeptException(self._take())
        try:
            threading.Thread(
                target=other._take, name="jobqueue-free", daemon=True
            ).start()
        except RuntimeError:
            # No thread can be started.
            other._take()

    def __del__(self) -> None:
        self.free()

    def _take(self) -> BaseException | None:
        error, self._error = self._error, None
        return error


def clear_frames(error: BaseException) -> None:
    """Clear the local variables in the traceback of an exception and of its causes.

    Lines and functions stay. Frames that still run are left alone.
    """
    links = [error]
    for link in links:
        if len(links) <= MAX_PARTS:
            linked = [_find_cause(link)[0], *_find_members(link)]
            known = {id(each) for each in links}
            links += [
                each for each in linked if each is not None and id(each) not in known
            ]
        start: TracebackType | None = _get_traceback(link)
        while start is not None:
            with suppress(RuntimeError):
                start.tb_frame.clear()
            start = start.tb_next


# Python's own descriptors: metaclasses and properties may lie, or raise.
_get_mro: Any = vars(type)["__mro__"].__get__
_get_module: Any = vars(type)["__module__"].__get__
_get_qualname: Any = vars(type)["__qualname__"].__get__
_get_traceback: Any = vars(BaseException)["__traceback__"].__get__


def name_class(cls: type) -> str:
    """Return the name of an exception class as it is stored."""
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
    # Only here and in worker/running/attempt.py: the value is the user's code.
    except BaseException:
        name = name_class(type(value)).rpartition(".")[2]
        return f"(the message of this {name} could not be read)"


def _copy(text: str) -> str:
    """Return an exact str: the methods of a subclass may raise."""
    return str.__str__(text)


def _read_traceback(error: BaseException) -> str:
    try:
        text = _format_whole(error) if _is_small(error) else _format_parts(error)
    except BaseException:
        text = _format_parts(error)
    if len(text) > TRACEBACK_LIMIT:
        # Keep both ends: the last lines name the error, the first where it came from.
        half = TRACEBACK_LIMIT // 2 - 2
        text = f"{text[:half]}\n…\n{text[-half:]}"
    return clean_text(text, limit=TRACEBACK_LIMIT)


def _is_small(error: BaseException) -> bool:
    """Return whether chain and groups are short; properties may make them endless."""
    # Keyed by id. Keep the objects: a freed one would give its id to the next.
    seen: dict[int, BaseException] = {}
    waiting = [error]
    while waiting and len(seen) <= MAX_EXCEPTIONS:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        linked = (one.__cause__, one.__context__)
        waiting += [other for other in linked if other is not None]
        if issubclass(type(one), BaseExceptionGroup):
            waiting += islice(one.exceptions, MAX_EXCEPTIONS + 1)  # type: ignore[attr-defined]
    return len(seen) <= MAX_EXCEPTIONS


def _format_whole(error: BaseException) -> str:
    shown = traceback.TracebackException.from_exception(
        error, limit=-MAX_FRAMES, compact=True
    )
    # Piece by piece: each message in a chain may be megabytes long.
    return "".join(clean_text(piece) for piece in shown.format())


def _format_parts(error: BaseException) -> str:
    """Format the end of a chain that is too long, or that cannot be formatted whole."""
    links = [error]
    text = _format_link(error)
    while len(links) < MAX_PARTS:
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
        frames = "".join(traceback.format_tb(start, limit=-MAX_FRAMES))
    except BaseException:
        # The source cannot be read, or the file name is not a valid one.
        frames = "".join(
            f'  File "{place}", line {line}, in {function}\n'
            for place, line, function in _walk_frames(start, limit=MAX_FRAMES)
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
        return list(islice(error.exceptions, MAX_PARTS))  # type: ignore[attr-defined]
    except BaseException:
        return []


def _walk_frames(
    start: TracebackType | None, *, limit: int
) -> Iterable[tuple[str, int, str]]:
    """Yield (file, line, function) of the innermost frames, outermost first."""
    frames: deque[TracebackType] = deque(maxlen=limit)
    while start is not None:
        frames.append(start)
        start = start.tb_next
    for frame in frames:
        code = frame.tb_frame.f_code
        yield _copy(code.co_filename), frame.tb_lineno, _copy(code.co_name)


def _fingerprint(error: BaseException, name: str, job_type: str) -> str:
    """Hash class and innermost functions: messages and line numbers do not count."""
    frames = _walk_frames(_get_traceback(error), limit=5)
    places = [f"{file.rpartition('/')[2]}:{function}" for file, _, function in frames]
    return _hash(job_type, name, *places)


def _hash(*parts: str) -> str:
    # A row written by hand may hold another type in any column of SQLite.
    text = "|".join(map(str, parts))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
