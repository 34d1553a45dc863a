"""Middleware for the tests: some work, the others each fail in one way."""

from __future__ import annotations

import asyncio
import time
from inspect import iscoroutinefunction
from typing import Any

from django.core.exceptions import MiddlewareNotUsed
from django.utils.decorators import (
    async_only_middleware,
    sync_and_async_middleware,
    sync_only_middleware,
)

from django_jobqueue import Snooze

# (event, job type or result), in order.
events: list[tuple[str, Any]] = []
# Factories that were called: (name, whether for async handlers).
made: list[tuple[str, bool]] = []


def _make_recorder(name: str) -> Any:
    @sync_and_async_middleware
    def record(call_next: Any) -> Any:
        is_async = iscoroutinefunction(call_next)
        made.append((name, is_async))

        def run(context: Any, args: Any, payload: Any) -> Any:
            events.append((f"{name} begins", context.job_type))
            try:
                result = call_next(context, args, payload)
                events.append((f"{name} sees", result))
            finally:
                events.append((f"{name} ends", context.job_type))
            # Ignored: the result of the handler counts.
            return "of the middleware"

        async def arun(context: Any, args: Any, payload: Any) -> Any:
            events.append((f"{name} begins", context.job_type))
            try:
                result = await call_next(context, args, payload)
                events.append((f"{name} sees", result))
            finally:
                events.append((f"{name} ends", context.job_type))

        return arun if is_async else run

    return record


outer = _make_recorder("outer")
inner = _make_recorder("inner")


class AddTen:
    """A middleware class; changes the arguments of the handler."""

    sync_capable = True
    async_capable = False

    def __init__(self, call_next: Any) -> None:
        self.call_next = call_next

    def __call__(self, context: Any, args: Any, payload: Any) -> Any:
        return self.call_next(context, args, {**payload, "x": payload["x"] + 10})


@sync_and_async_middleware
def fail_before(call_next: Any) -> Any:
    def run(context: Any, args: Any, payload: Any) -> Any:
        raise LookupError("no such tenant")

    async def arun(context: Any, args: Any, payload: Any) -> Any:
        raise LookupError("no such tenant")

    return arun if iscoroutinefunction(call_next) else run


def fail_after(call_next: Any) -> Any:
    def run(context: Any, args: Any, payload: Any) -> Any:
        call_next(context, args, payload)
        raise LookupError("too late")

    return run


def snooze(call_next: Any) -> Any:
    def run(context: Any, args: Any, payload: Any) -> Any:
        raise Snooze(60, "the tenant is being moved")

    return run


@sync_and_async_middleware
def swallow(call_next: Any) -> Any:
    def run(context: Any, args: Any, payload: Any) -> Any:
        try:
            call_next(context, args, payload)
        except Exception:
            events.append(("swallowed", context.job_type))

    async def arun(context: Any, args: Any, payload: Any) -> Any:
        try:
            await call_next(context, args, payload)
        except Exception:
            events.append(("swallowed", context.job_type))

    return arun if iscoroutinefunction(call_next) else run


@sync_and_async_middleware
def forget(call_next: Any) -> Any:
    def run(context: Any, args: Any, payload: Any) -> Any: ...

    async def arun(context: Any, args: Any, payload: Any) -> Any: ...

    return arun if iscoroutinefunction(call_next) else run


def repeat(call_next: Any) -> Any:
    def run(context: Any, args: Any, payload: Any) -> Any:
        call_next(context, args, payload)
        call_next(context, args, payload)

    return run


@sync_and_async_middleware
def linger(call_next: Any) -> Any:
    def run(context: Any, args: Any, payload: Any) -> Any:
        events.append(("lingers", context.job_type))
        for _ in range(6000):
            time.sleep(0.01)

    async def arun(context: Any, args: Any, payload: Any) -> Any:
        events.append(("lingers", context.job_type))
        await asyncio.sleep(60)

    return arun if iscoroutinefunction(call_next) else run


@sync_and_async_middleware
def read_tenant(call_next: Any) -> Any:
    def run(context: Any, args: Any, payload: Any) -> Any:
        events.append(("tenant", context.read_meta().get("tenant")))
        return call_next(context, args, payload)

    async def arun(context: Any, args: Any, payload: Any) -> Any:
        events.append(("tenant", (await context.aread_meta()).get("tenant")))
        return await call_next(context, args, payload)

    return arun if iscoroutinefunction(call_next) else run


def not_used(call_next: Any) -> Any:
    raise MiddlewareNotUsed


def returns_nothing(call_next: Any) -> Any:
    return None


only_sync = sync_only_middleware(lambda call_next: call_next)
only_async = async_only_middleware(lambda call_next: call_next)
not_callable = "a text"
