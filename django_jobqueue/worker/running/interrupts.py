"""Interrupts: where an exception may be raised in the thread of a handler, and how.

CPython raises an asynchronous exception at the target's next check: the start of a
function, a jump backwards, the end of a call. It is safe where no frame between the
handler's entry and the top of the stack may hold, or be about to take, a lock that the
worker's own threads need. Used by in_flight.py; docs/design/decisions/0014 has the
proof.
"""

from __future__ import annotations

import ctypes
import dis
import gc
import sys
import threading
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import lru_cache, partial
from itertools import chain
from operator import attrgetter, call, eq, is_, methodcaller
from types import FrameType
from typing import Any, Protocol

# Unsafe anywhere on the stack: they call other code while they hold a lock, or hold a
# connection that only they know.
SEALED = (
    "logging",
    "loguru",
    "structlog",
    "importlib._bootstrap",
    "importlib._bootstrap_external",
    "_frozen_importlib",
    "_frozen_importlib_external",
    "psycopg_pool",
    "django.apps",
    "django_jobqueue.worker",
)
# Unsafe while their own code is on top. What they call (a receiver, a hook, a decorated
# function) runs without their locks and may be interrupted.
SHARED = (
    "asgiref",
    "django.core.cache",
    "django.db.backends",
    "django.db.transaction",
    "django.db.utils",
    "django.dispatch",
    "django_jobqueue",
    "opentelemetry",
    "prometheus_client",
    "sentry_sdk",
)
# Our modules between the entry and the handler: they hold no lock.
OPEN = (
    "django_jobqueue.handlers",
    "django_jobqueue.middleware",
    "django_jobqueue.worker.running.call",
)
# Database drivers. Safe if their caller is, like the standard library.
DRIVERS = ("MySQLdb", "psycopg", "psycopg_binary", "psycopg_c", "pymysql")


# Written in Python, they acquire and release locks: an exception between that and the
# caller's `with` leaks a lock. Unsafe as the top frame, apart from their waits.
LOCKING = ("queue", "threading")
# The lines of a wait in which it is blocked; around them it releases and reacquires.
_WAIT = threading.Condition.wait.__code__
_BLOCKED_LINES = frozenset(
    step.positions.lineno
    for step in dis.get_instructions(_WAIT)
    if step.argval == "acquire" and step.positions is not None
)
# These hold no lock when they are interrupted.
_JOINS = frozenset(
    method.__code__
    for name in ("join", "_wait_for_tstate_lock")
    if (method := getattr(threading.Thread, name, None)) is not None
)


class Receiver(Protocol):
    """An attempt that is to be interrupted: an InFlightJob."""

    entry: FrameType | None

    def raise_undelivered(self) -> None: ...


# Thread → the attempt in it whose interruption has not been raised yet.
wanted: dict[int, Receiver] = {}

# PYFUNCTYPE keeps the interpreter's lock during the call.
_NAME = ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
_SET = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)
_CLEAR = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)
_set_async_exc = _SET(_NAME)
_clear_async_exc = _CLEAR(_NAME)
# Until Python 3.11 an allocation may run the garbage collector, and so other code.
_COLLECTS_IN_ALLOCATIONS = sys.version_info < (3, 12)


class Kind(Enum):
    """What a module's frame means for the frames around it."""

    SEALED = auto()
    SHARED = auto()
    BORROWED = auto()
    OWN = auto()


def strike(thread: int, entry: FrameType, cause: type[BaseException]) -> bool:
    """Raise `cause` in a thread above its frame `entry`; False: not safe now."""
    top = sys._current_frames().get(thread)
    if top is None:
        return False
    # In a wait the instruction matters too: read before its line.
    positions = [top.f_lasti] if top.f_code is _WAIT else []
    frames = find_safe_frames(top, entry)
    return frames is not None and _strike_if_still_there(
        thread, frames, entry, cause, positions
    )


def withdraw(thread: int) -> None:
    """Take back an exception that has not been raised yet."""
    _clear_async_exc(thread, None)


def raise_wanted() -> None:
    """Raise the interruption that waits for this thread, as a failing call would.

    An ordinary exception: every lock on its way is released.
    """
    job = wanted.get(threading.get_ident())
    if job is not None:
        job.raise_undelivered()


def raise_wanted_by_log_call() -> None:
    """Raise the interruption for this thread, unless a library or the worker logs.

    Called before a log record is made: a handler that does nothing but log would
    hardly ever be outside of logging. No lock is taken yet at that point, but a
    connection pool that logs does not expect an exception.
    """
    job = wanted.get(threading.get_ident())
    entry = job.entry if job is not None else None
    if job is None or entry is None:
        return
    if find_safe_frames(sys._getframe(), entry, is_logging=True) is not None:
        job.raise_undelivered()


def find_safe_frames(
    top: FrameType, entry: FrameType, *, is_logging: bool = False
) -> list[FrameType] | None:
    """Return the frames above `entry`, from the top; None if one of them is unsafe.

    With `is_logging` those at the top that belong to the logging call do not count.
    """
    frames: list[FrameType] = []
    has_owner = False
    if _is_locking(top):
        return None
    frame: FrameType | None = top
    while frame is not None and frame is not entry:
        name = frame.f_globals.get("__name__")
        kind = find_kind(name) if isinstance(name, str) else Kind.OWN
        if is_logging and not has_owner and _is_part_of_logging(name):
            kind = Kind.BORROWED
        if kind is Kind.SEALED or (kind is Kind.SHARED and not has_owner):
            return None
        has_owner = has_owner or kind is Kind.OWN
        frames.append(frame)
        frame = frame.f_back
    # Without an owner the thread is in the code that enters and leaves the handler.
    return frames if has_owner and frame is entry else None


@lru_cache(maxsize=4096)
def find_kind(module: str) -> Kind:
    if _is_among(module, OPEN):
        return Kind.OWN
    if _is_among(module, SEALED):
        return Kind.SEALED
    if _is_among(module, SHARED):
        return Kind.SHARED
    package = module.partition(".")[0]
    if package in DRIVERS or package in sys.stdlib_module_names:
        return Kind.BORROWED
    return Kind.OWN


def _is_locking(top: FrameType) -> bool:
    """Return whether a frame may be between a lock and the code that releases it."""
    if top.f_globals.get("__name__") not in LOCKING or top.f_code in _JOINS:
        return False
    return top.f_code is not _WAIT or top.f_lineno not in _BLOCKED_LINES


def _is_among(module: str, names: Iterable[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def _is_part_of_logging(module: Any) -> bool:
    return module in ("logging", __name__, "django_jobqueue.worker.startup.logs")


def _strike_if_still_there(
    thread: int,
    frames: list[FrameType],
    entry: FrameType,
    cause: type[BaseException],
    positions: list[int],
) -> bool:
    """Set the exception if the stack is still this one, in a single call of C code.

    No bytecode runs between the comparison and the setting, and without bytecode the
    interpreter's lock does not change hands: the target cannot move in between.
    """
    steps = chain(
        map(
            is_,
            map(methodcaller("get", thread), map(call, [sys._current_frames])),
            frames[:1],
        ),
        map(is_, map(attrgetter("f_back"), frames), [*frames[1:], entry]),
        map(eq, map(attrgetter("f_lasti"), frames), positions),
        map(_set_async_exc, [thread], [cause]),
    )
    if _COLLECTS_IN_ALLOCATIONS and gc.isenabled():
        calls: list[Callable[[], Any]] = [gc.disable, partial(all, steps), gc.enable]
        return bool(list(map(call, calls))[1])
    return all(steps)
