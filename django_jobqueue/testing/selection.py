"""Finds the job type of what a test passes: a handler, a class, a task or a name."""

from __future__ import annotations

from typing import Any

from ..handlers import BaseHandler, Handler
from ..registry import get_handler


def name_job_type(handler: Any) -> str:
    """Return the job type of a handler. Raises UnknownJobType for an unknown name.

    A name must be registered: with a misspelt one, refute_enqueued() would always pass.
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
        f"Expected a handler of @job or @handler, a task, or the name of one, not "
        f"{handler!r}."
    )
