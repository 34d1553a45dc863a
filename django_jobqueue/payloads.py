"""Payloads and results as JSON: what they may contain, and errors that name the place.

Called by enqueue before anything is written, and by the worker for results.
PostgreSQL's jsonb and SQLite both accept the text that is returned.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from .exceptions import InvalidPayload, InvalidResult, PayloadTooLarge, ResultTooLarge

SURROGATE = re.compile("[\ud800-\udfff]")
# PostgreSQL fails at some thousand levels and aborts the transaction.
MAX_DEPTH = 200
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
    # A character has at most four bytes: short texts need not be encoded to know.
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
        raise InvalidResult(f"{fault} A result is JSON or None.")
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
        # Before the encoder, which recurses as deep as Python allows.
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
    """Yield what JSON or jsonb would refuse or silently change."""
    if depth > MAX_DEPTH:
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
                    f"{path} has the key {key!r}; JSON keys are strings, "
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
        # A handler returns its result; everything else is passed by the caller.
        verb = "return" if path.startswith("result") else "pass"
        yield (
            f"{path} is {_describe(value)}, which JSON does not have; "
            f"{_advise(value, verb)}"
        )


def _describe(value: Any) -> str:
    if isinstance(value, Model):
        return f"a model instance ({type(value).__name__})"
    return f"of type {type(value).__name__}"


def _advise(value: Any, verb: str) -> str:
    if isinstance(value, Model):
        load = " and load it in the handler" if verb == "pass" else ""
        return f"{verb} its primary key{load}."
    if isinstance(value, QuerySet):
        return f"{verb} a list of primary keys: list(….values_list('pk', flat=True))."
    if isinstance(value, bytes | bytearray | memoryview):
        return f"decode it, or {verb} it in base64."
    if isinstance(value, set | frozenset):
        return f"{verb} a list."
    if hasattr(value, "isoformat"):
        return f"{verb} value.isoformat()."
    if isinstance(value, UUID | Decimal):
        return f"{verb} str(value)."
    if isinstance(value, HttpRequest):
        return f"{verb} the values that the handler needs, such as request.user.pk."
    if callable(value):
        return f"{verb} data, and choose the code in the handler."
    return f"{verb} its text or its parts."
