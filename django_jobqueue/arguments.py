"""Why arguments do not fit a handler, in words that say what to write instead.

Called by handlers.py once a call has been refused: enqueueing what fits costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from inspect import Parameter, Signature
from typing import Any

from .suggestions import find_equivalent, find_similar


def describe_misfit(
    error: TypeError,
    signature: Signature,
    payload: Mapping[str, Any],
    *,
    options: Iterable[str],
) -> str:
    """Return what is wrong with the payload, as a clause with its punctuation.

    `error` is what Signature.bind() raised; it is used where nothing better is known.
    `options` are those that using() takes.
    """
    hints = list(_find_hints(signature, payload, list(options)))
    if hints:
        return "; ".join(hints)
    unexpected = [name for name in payload if name not in signature.parameters]
    if unexpected and "missing" in str(error):
        # bind() names one fault only.
        return f"{error}; unexpected {', '.join(map(repr, unexpected))}."
    return f"{error}."


def _find_hints(
    signature: Signature, payload: Mapping[str, Any], options: list[str]
) -> Iterator[str]:
    parameters = signature.parameters
    if any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
        return
    missing = [name for name in parameters if name not in payload]
    for name in payload:
        if name in parameters:
            continue
        option = name if name in options else find_equivalent(name, options)
        if similar := find_similar(name, missing):
            yield f"unexpected {name!r}, did you mean {similar!r}?"
        elif option == name:
            yield f"unexpected {name!r}, an option of the job: .using({name}=…)."
        elif option:
            yield f"unexpected {name!r}, which is called {option!r} here: " + (
                f".using({option}=…)."
            )
