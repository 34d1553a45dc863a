"""Middleware around every job of the shop, listed in JOBQUEUE["MIDDLEWARE"]."""

from __future__ import annotations

from inspect import iscoroutinefunction
from typing import Any

from django.conf import settings
from django.utils import translation
from django.utils.decorators import sync_and_async_middleware

from django_jobqueue import JobContext


@sync_and_async_middleware
def set_language(call_next: Any) -> Any:
    """Run each job in the language in which it was enqueued.

    Set the language at enqueue with `using(meta={"language": …})`; see actions.py.
    """

    def run(context: JobContext, args: list[Any], payload: dict[str, Any]) -> Any:
        with translation.override(_choose(context.read_meta())):
            return call_next(context, args, payload)

    async def arun(
        context: JobContext, args: list[Any], payload: dict[str, Any]
    ) -> Any:
        with translation.override(_choose(await context.aread_meta())):
            return await call_next(context, args, payload)

    return arun if iscoroutinefunction(call_next) else run


def _choose(meta: dict[str, Any]) -> str:
    language: str = meta.get("language", settings.LANGUAGE_CODE)
    return language
