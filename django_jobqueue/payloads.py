"""JSON at the edge: what a payload and a result may hold, and the errors that say so.

Called by enqueue before anything is written, and by worker/run.py for results. The
text that comes out is accepted by PostgreSQL's jsonb and by SQLite alike.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from django.db.models import Model

from .exceptions import InvalidPayload, InvalidResult, PayloadTooLarge, ResultTooLarge

SURROGATE = re.compile("[\ud800-\udfff]")
# PostgreSQL gives up at some thousand levels, and aborts the transaction.
DEEPEST = 200
_SCALARS = (str, int, float, bool, type(None))
_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":")
).encode


def dump_payload(payload: Any, *, limit: int) -> str:
    """Return the payload as JSON text. Raises InvalidPayload or PayloadTooLarge."""
    if not isinstance(payload, dict):
        raise InvalidPayload(
            f"The payload is a dict of the handler's keyword arguments, not "
            f"{_describe(payload)}. Pass something like {{'user_id': 1}}."
        )
    if not payload:
        return "{}"
    text, fault = _dump(payload, "payload")
    if fault:
        raise InvalidPayload(fault)
    # A character has at most four bytes.
    size = len(text) if 4 * len(text) <= limit else len(text.encode())
    if size > limit:
        raise PayloadTooLarge(
            f"The payload has {size:,} bytes of JSON; MAX_PAYLOAD_BYTES allows "
            f"{limit:,}. Store the data elsewhere and pass a reference to it."
        )
    return text


def dump_args(args: list[Any], *, limit: int) -> str:
    """Return the positional arguments of a task as JSON text. Raises as above."""
    text, fault = _dump(args, "args")
    if fault:
        raise InvalidPayload(fault)
    size = len(text.encode())
    if size > limit:
        raise PayloadTooLarge(
            f"The arguments have {size:,} bytes of JSON; MAX_PAYLOAD_BYTES leaves "
            f"{max(limit, 0):,} for them. Store the data elsewhere and pass a "
            f"reference to it."
        )
    return text


def dump_result(result: Any, *, limit: int) -> str | None:
    """Return a handler's result as JSON text, None for None. Raises InvalidResult."""
    if result is None:
        return None
    text, fault = _dump(result, "result")
    if fault:
        raise InvalidResult(f"{fault} Return JSON, or nothing.")
    size = len(text.encode())
    if size > limit:
        raise ResultTooLarge(
            f"The result has {size:,} bytes of JSON; MAX_RESULT_BYTES allows "
            f"{limit:,}. Store the data elsewhere and return a reference to it."
        )
    return text


def dump_json(value: Any, *, name: str) -> str:
    """Return another JSON value of a job (tags, meta) as text."""
    text, fault = _dump(value, name)
    if fault:
        raise InvalidPayload(fault)
    return text


def _dump(value: Any, name: str) -> tuple[str, str]:
    """Return (text, "") or ("", what is wrong and where)."""
    try:
        is_flat = _is_flat(value)
        # Before the encoder, which goes as deep as Python lets it.
        fault = "" if is_flat else next(_find_faults(value, name), "")
        text = "" if fault else _encode(value)
        if is_flat and ("\\u0000" in text or SURROGATE.search(text)):
            fault = next(_find_faults(value, name), "")
    except RecursionError:
        return "", f"{name} is nested too deeply or contains itself; flatten it."
    except (TypeError, ValueError) as error:
        fault = next(_find_faults(value, name), f"{name} is not JSON: {error}.")
    return ("", fault) if fault else (text, "")


def _is_flat(value: Any) -> bool:
    return type(value) is dict and all(
        type(key) is str and type(item) in _SCALARS for key, item in value.items()
    )


def _find_faults(value: Any, path: str, depth: int = 0) -> Iterator[str]:
    """Yield what JSON or jsonb would refuse, or would silently change."""
    if depth > DEEPEST:
        raise RecursionError
    if isinstance(value, str):
        if "\0" in value:
            yield f"{path} contains a NUL character, which PostgreSQL cannot store."
        elif SURROGATE.search(value):
            yield f"{path} contains a lone surrogate, which is not valid Unicode."
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                yield (
                    f"{path} has the key {key!r}; JSON keys are texts, "
                    f"use {str(key)!r}."
                )
            else:
                yield from _find_faults(key, f"the key {key!r} of {path}", depth)
            yield from _find_faults(item, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _find_faults(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{path} is {value}, which JSON does not have; use None or a text."
    elif not isinstance(value, _SCALARS):
        yield (
            f"{path} is {_describe(value)}, which JSON does not have; {_advise(value)}"
        )


def _describe(value: Any) -> str:
    if isinstance(value, Model):
        return f"a model instance ({type(value).__name__})"
    return f"of type {type(value).__name__}"


def _advise(value: Any) -> str:
    if isinstance(value, Model):
        return "pass its primary key and load it in the handler."
    if isinstance(value, bytes | bytearray | memoryview):
        return "decode it, or pass it in base64."
    if isinstance(value, set | frozenset):
        return "pass a list."
    if hasattr(value, "isoformat"):
        return "pass value.isoformat()."
    return "pass its text or its parts."
