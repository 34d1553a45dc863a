"""Middleware: code of the project around every handler, from JOBQUEUE["MIDDLEWARE"].

Built like Django's own: a factory gets `call_next` and returns a callable in its place,
once per process for sync and once for async handlers. worker/running/call.py and
worker/running/attempt.py call handlers through it; with an empty list none of this
runs. The handler decides the outcome of the job: a middleware can change it only by
raising.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.core.exceptions import MiddlewareNotUsed
from django.utils.module_loading import import_string

from .context import JobContext
from .exceptions import ConfigurationError, MiddlewareError

# Takes context, positional arguments and payload. Of async handlers: a coroutine.
Call = Callable[[JobContext, list[Any], dict[str, Any]], Any]


@dataclass(slots=True)
class _ChainCall:
    """One call of a handler through its middleware."""

    # Calls the handler with positional arguments and payload.
    call: Callable[[list[Any], dict[str, Any]], Any]
    # The middleware that was entered last.
    innermost: str = ""
    has_entered_handler: bool = False
    # What the handler returned or raised.
    result: Any = None
    error: BaseException | None = None
    # What a middleware raised, once a note names the middleware.
    annotated: BaseException | None = None

    def enter_handler(self) -> None:
        if self.has_entered_handler:
            raise MiddlewareError(
                f"The middleware {self.innermost} called call_next() twice. A handler "
                f"runs once in an attempt; raise Snooze to run it again."
            )
        self.has_entered_handler = True

    def annotate(self, path: str, error: Exception) -> None:
        """Add a note that names the middleware, unless the handler raised this."""
        if error is self.error or error is self.annotated:
            return
        self.annotated = error
        # The exception's class may refuse a note.
        with suppress(Exception):
            BaseException.add_note(error, f"Raised in the middleware {path}.")

    def finish(self) -> Any:
        """Return what the handler returned, or raise what it raised."""
        if not self.has_entered_handler:
            raise MiddlewareError(
                f"The middleware {self.innermost} returned without calling the "
                f"handler. It must call call_next(context, args, payload), or raise "
                f"Snooze, Cancel or Discard."
            )
        if self.error is not None:
            raise self.error
        return self.result

    def clear(self) -> None:
        """Drop the exceptions: their tracebacks refer to this object and its frames."""
        self.error = self.annotated = None


_current: ContextVar[_ChainCall] = ContextVar("jobqueue_chain_call")


def call_through(
    paths: tuple[str, ...],
    context: JobContext,
    args: list[Any],
    payload: dict[str, Any],
    *,
    call: Callable[[list[Any], dict[str, Any]], Any],
) -> Any:
    """Run `call(args, payload)` inside the middleware and return what it returned."""
    chain_call = _ChainCall(call)
    token = _current.set(chain_call)
    try:
        load_chain(paths, is_async=False)(context, args, payload)
        return chain_call.finish()
    finally:
        _current.reset(token)
        chain_call.clear()


async def acall_through(
    paths: tuple[str, ...],
    context: JobContext,
    args: list[Any],
    payload: dict[str, Any],
    *,
    call: Callable[[list[Any], dict[str, Any]], Any],
) -> Any:
    """See call_through(); `call` returns a coroutine."""
    chain_call = _ChainCall(call)
    # Each asyncio task has its own context: nothing to reset.
    _current.set(chain_call)
    try:
        await load_chain(paths, is_async=True)(context, args, payload)
        return chain_call.finish()
    finally:
        chain_call.clear()


@cache
def load_chain(paths: tuple[str, ...], *, is_async: bool) -> Call:
    """Build the middleware chain for sync or async handlers. Raises ConfigurationError.

    The first in the list is the outermost. A factory that raises MiddlewareNotUsed is
    left out.
    """
    call_next: Call = _acall_handler if is_async else _call_handler
    for path in reversed(paths):
        factory = import_factory(path)
        if not is_capable(factory, is_async=is_async):
            raise ConfigurationError(describe_incapable(path, is_async=is_async))
        with suppress(MiddlewareNotUsed):
            made = factory(call_next)
            if not callable(made):
                raise ConfigurationError(
                    f"The middleware {path} returned {made!r} for call_next; it must "
                    f"return a function (context, args, payload)."
                )
            call_next = (_aguard if is_async else _guard)(path, made)
    return call_next


def load_chains(paths: tuple[str, ...], modes: Iterable[bool]) -> None:
    """Build the chain for each mode (is_async). Raises ConfigurationError."""
    for is_async in sorted(set(modes)):
        load_chain(paths, is_async=is_async)


def import_factory(path: str) -> Callable[[Call], Call]:
    """Import one entry of JOBQUEUE["MIDDLEWARE"]. Raises ConfigurationError."""
    try:
        found: Any = import_string(path)
    except ImportError as error:
        raise ConfigurationError(
            f"The middleware {path!r} in JOBQUEUE['MIDDLEWARE'] cannot be imported: "
            f"{error}. Write the dotted path of a function or class."
        ) from error
    if not callable(found):
        raise ConfigurationError(
            f"The middleware {path!r} in JOBQUEUE['MIDDLEWARE'] is {found!r}; it must "
            f"be a function or class that takes call_next."
        )
    return found  # type: ignore[no-any-return]


def is_capable(factory: Any, *, is_async: bool) -> bool:
    """Return whether a middleware supports a mode, by Django's attributes."""
    if is_async:
        return bool(getattr(factory, "async_capable", False))
    return bool(getattr(factory, "sync_capable", True))


def describe_incapable(path: str, *, is_async: bool) -> str:
    """Return the error for a middleware that does not support one of the modes."""
    kind, other = ("async", "sync") if is_async else ("sync", "async")
    return (
        f"The middleware {path} supports {other} handlers only and cannot run around "
        f"{kind} handlers. Let it support both, with sync_and_async_middleware from "
        f"django.utils.decorators."
    )


def _call_handler(context: JobContext, args: list[Any], payload: dict[str, Any]) -> Any:
    chain_call = _current.get()
    chain_call.enter_handler()
    try:
        chain_call.result = chain_call.call(args, payload)
    except BaseException as error:
        chain_call.error = error
        raise
    return chain_call.result


async def _acall_handler(
    context: JobContext, args: list[Any], payload: dict[str, Any]
) -> Any:
    chain_call = _current.get()
    chain_call.enter_handler()
    try:
        chain_call.result = await chain_call.call(args, payload)
    except BaseException as error:
        chain_call.error = error
        raise
    return chain_call.result


def _guard(path: str, made: Call) -> Call:
    def enter(context: JobContext, args: list[Any], payload: dict[str, Any]) -> Any:
        chain_call = _current.get()
        chain_call.innermost = path
        try:
            return made(context, args, payload)
        except Exception as error:
            chain_call.annotate(path, error)
            raise

    return enter


def _aguard(path: str, made: Call) -> Call:
    async def enter(
        context: JobContext, args: list[Any], payload: dict[str, Any]
    ) -> Any:
        chain_call = _current.get()
        chain_call.innermost = path
        try:
            return await made(context, args, payload)
        except Exception as error:
            chain_call.annotate(path, error)
            raise

    return enter
