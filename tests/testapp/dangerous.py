"""Handlers that hang, ignore what they are told, or kill their process."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import resource
import signal
import time
from pathlib import Path

from django_jobqueue import JobContext, job

# Without and with the interpreter's lock.
_libc = ctypes.CDLL(None)
_libc_with_lock = ctypes.PyDLL(None)


def write_line(ledger: str, line: str) -> None:
    """Append one line in one write: it is whole, or it is not there."""
    handle = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, f"{line}\n".encode())
    finally:
        os.close(handle)


@job(takes_context=True, max_attempts=3, backoff=0)
def note(context: JobContext, ledger: str, seconds: float = 0.0) -> str:
    """Write a line, work for a while, write another."""
    line = f"{context.job_id} {context.attempt} {context.fence}"
    write_line(ledger, f"start {line}")
    time.sleep(seconds)
    write_line(ledger, f"end {line}")
    return line


@job(takes_context=True, max_attempts=3, backoff=0)
async def note_async(context: JobContext, ledger: str, seconds: float = 0.0) -> str:
    line = f"{context.job_id} {context.attempt} {context.fence}"
    write_line(ledger, f"start {line}")
    await asyncio.sleep(seconds)
    write_line(ledger, f"end {line}")
    return line


@job(timeout=0.5, max_attempts=1)
def hang_in_c(seconds: int = 600) -> None:
    """A call that no exception reaches; other threads go on."""
    _libc.sleep(seconds)


@job(timeout=0.5, max_attempts=1)
def hang_with_the_lock(seconds: int = 600) -> None:
    """A call that stops every thread of its process."""
    _libc_with_lock.sleep(seconds)


@job(timeout=0.5, max_attempts=1)
def match_for_ever() -> None:
    """A catastrophic regular expression: in C, with the interpreter's lock."""
    re.match(r"(a|aa)+$", "a" * 200 + "b")


@job(timeout=0.5, max_attempts=1)
def spin_for_ever() -> None:
    """A busy loop in Python, which hears of its time-out."""
    while True:
        pass


@job(timeout=0.5, max_attempts=1)
def swallow_everything() -> None:
    """A busy loop that does not want to hear."""
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            continue


@job(timeout=0.5, max_attempts=1)
async def swallow_cancellation() -> None:
    while True:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue


@job(timeout=0.5, max_attempts=1)
async def block_the_event_loop(seconds: float = 600.0) -> None:
    time.sleep(seconds)


@job(timeout=600, max_attempts=1)
def ignore_cancellation(touch: str) -> None:
    Path(touch).touch()
    swallow_everything()


@job(max_attempts=10)
def segfault() -> None:
    ctypes.string_at(0)


@job(max_attempts=10)
def abort() -> None:
    os.abort()


@job(max_attempts=10)
def exit_at_once(code: int = 3) -> None:
    os._exit(code)


@job(max_attempts=10)
def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@job(max_attempts=10)
def eat_memory() -> None:
    """Take memory until the limit, as C code does that does not look at NULL."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    _libc.malloc.restype = ctypes.c_void_p
    while True:
        ctypes.memset(_libc.malloc(ctypes.c_size_t(1 << 24)), 1, 1 << 24)


@job(takes_context=True, max_attempts=10)
def crash_unless_alone(context: JobContext, touch: str) -> None:
    """Kill the process the first time only."""
    if not Path(touch).exists():
        Path(touch).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@job(max_attempts=1)
def crash_once_only() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
