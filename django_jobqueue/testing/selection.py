"""From what a test names, a handler, a class, a task or a text, to the job type."""

from __future__ import annotations

from typing import Any

from ..handlers import BaseHandler, Handler
from ..registry import get_handler


def name_job_type(handler: Any) -> str:
    """Return the job type of a handler. Raises UnknownJobType for a name without one.

    A name is looked up: a misspelt one would make every refutation true.
    """
    if isinstance(handler, Handler):
        return handler.name
    if isinstance(handler, type) and issubclass(handler, BaseHandler):
        return handler.handler.name
    if isinstance(handler, str):
        return get_handler(handler).name
    # A task of django.tasks.
    path = getattr(handler, "module_path", None)
    if isinstance(path, str):
        return path
    raise TypeError(
        f"A handler of @job or @handler, a task, or the name of one is expected, not "
        f"{handler!r}."
    )
