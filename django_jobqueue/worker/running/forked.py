"""Processes that a handler forks with os.fork().

A forked process that returns from the handler must not go on as a worker: it would run
the jobs waiting in its memory again and use the parent's database connections. It ends
where the handler returns or raises, before anything else of the attempt runs.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import TracebackType

from ..health.bounded import run_bounded

# How many forks are between the first process and this one.
_depth = 0


def fork_depth() -> int:
    """Return a number that differs in every process forked after the call."""
    return _depth


def _note_fork() -> None:
    global _depth
    _depth += 1


os.register_at_fork(after_in_child=_note_fork)


class EndCopies:
    """Ends each process that was forked inside the `with` block."""

    __slots__ = ("_depth",)

    def __enter__(self) -> None:
        self._depth = _depth

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._depth != _depth:
            end_copy(error)


def end_copy(error: BaseException | None = None) -> None:
    """End this process at once: without exit hooks, which are the parent's. The exit
    code is that of sys.exit(), or 1 after another error."""
    # Another thread may have held the lock of a stream during the fork.
    run_bounded(_flush, name="flush")
    os._exit(_find_exit_code(error))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def _find_exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    code = error.code if isinstance(error, SystemExit) else 1
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1
