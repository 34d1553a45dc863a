"""Middleware: code of the project around every handler, from JOBQUEUE["MIDDLEWARE"].

Made as Django's own: a factory is given `call_next` and returns what is called instead,
once in each process for sync and once for async handlers. worker/run.py and
worker/attempt.py call handlers through it; for an empty list nothing of this runs. What
becomes of the job is the handler's to say: a middleware changes it only by raising.
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

# With the context, the positional arguments and the payload; async: a coroutine.
Call = Callable[[JobContext, list[Any], dict[str, Any]], Any]


@dataclass(slots=True)
class _Passage:
    """One call on its way through the middleware."""

    # Calls the handler with its positional arguments and its payload.
    call: Callable[[list[Any], dict[str, Any]], Any]
    # The middleware that was entered last.
    inmost: str = ""
    has_arrived: bool = False
    # What the handler returned or raised.
    result: Any = None
    error: BaseException | None = None
    # What a middleware raised, once its name was noted.
    noted: BaseException | None = None

    def arrive(self) -> None:
        if self.has_arrived:
            raise MiddlewareError(
                f"The middleware {self.inmost} called call_next() twice; a job's "
                f"handler runs once in an attempt. Raise Snooze to run it again."
            )
        self.has_arrived = True

    def note(self, path: str, error: Exception) -> None:
        """Write into an exception which middleware it came from, if from any."""
        if error is self.error or error is self.noted:
            return
        self.noted = error
        # Its class may refuse even that.
        with suppress(Exception):
            BaseException.add_note(error, f"Raised in the middleware {path}.")

    def leave(self) -> Any:
        """Return what the handler returned, raise what it raised."""
        if not self.has_arrived:
            raise MiddlewareError(
                f"The middleware {self.inmost} returned without calling the handler. "
                f"It must call call_next(context, args, payload), or raise Snooze, "
                f"Cancel or Discard to say what becomes of the job."
            )
        if self.error is not None:
            raise self.error
        return self.result

    def forget(self) -> None:
        """Let go of the exceptions: their tracebacks hold us, and much else."""
        self.error = self.noted = None


_passage: ContextVar[_Passage] = ContextVar("jobqueue_passage")


def call_through(
    paths: tuple[str, ...],
    context: JobContext,
    args: list[Any],
    payload: dict[str, Any],
    *,
    call: Callable[[list[Any], dict[str, Any]], Any],
) -> Any:
    """Run `call(args, payload)` inside the middleware and return what it returned."""
    passage = _Passage(call)
    token = _passage.set(passage)
    try:
        load_chain(paths, is_async=False)(context, args, payload)
        return passage.leave()
    finally:
        _passage.reset(token)
        passage.forget()


async def acall_through(
    paths: tuple[str, ...],
    context: JobContext,
    args: list[Any],
    payload: dict[str, Any],
    *,
    call: Callable[[list[Any], dict[str, Any]], Any],
) -> Any:
    """See call_through(); `call` returns a coroutine."""
    passage = _Passage(call)
    # Each task has a context of its own: nothing to take back.
    _passage.set(passage)
    try:
        await load_chain(paths, is_async=True)(context, args, payload)
        return passage.leave()
    finally:
        passage.forget()


@cache
def load_chain(paths: tuple[str, ...], *, is_async: bool) -> Call:
    """Build the middleware around the handlers of one kind. Raises ConfigurationError.

    The first of the list is the outermost. A factory that raises MiddlewareNotUsed is
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
    """Build what handlers of these modes (is_async) need. Raises ConfigurationError."""
    for is_async in sorted(set(modes)):
        load_chain(paths, is_async=is_async)


def import_factory(path: str) -> Callable[[Call], Call]:
    """Return what JOBQUEUE["MIDDLEWARE"] names. Raises ConfigurationError."""
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
    """Tell what a middleware says of itself, with Django's attributes and defaults."""
    if is_async:
        return bool(getattr(factory, "async_capable", False))
    return bool(getattr(factory, "sync_capable", True))


def describe_incapable(path: str, *, is_async: bool) -> str:
    """Say what is wrong with a middleware that lacks one of the two modes."""
    kind, other = ("async", "sync") if is_async else ("sync", "async")
    return (
        f"The middleware {path} is for {other} handlers only, and cannot run around "
        f"{kind} ones. Make it both, with sync_and_async_middleware of "
        f"django.utils.decorators."
    )


def _call_handler(context: JobContext, args: list[Any], payload: dict[str, Any]) -> Any:
    passage = _passage.get()
    passage.arrive()
    try:
        passage.result = passage.call(args, payload)
    except BaseException as error:
        passage.error = error
        raise
    return passage.result


async def _acall_handler(
    context: JobContext, args: list[Any], payload: dict[str, Any]
) -> Any:
    passage = _passage.get()
    passage.arrive()
    try:
        passage.result = await passage.call(args, payload)
    except BaseException as error:
        passage.error = error
        raise
    return passage.result


def _guard(path: str, made: Call) -> Call:
    def enter(context: JobContext, args: list[Any], payload: dict[str, Any]) -> Any:
        passage = _passage.get()
        passage.inmost = path
        try:
            return made(context, args, payload)
        except Exception as error:
            passage.note(path, error)
            raise

    return enter


def _aguard(path: str, made: Call) -> Call:
    async def enter(
        context: JobContext, args: list[Any], payload: dict[str, Any]
    ) -> Any:
        passage = _passage.get()
        passage.inmost = path
        try:
            return await made(context, args, payload)
        except Exception as error:
            passage.note(path, error)
            raise

    return enter
