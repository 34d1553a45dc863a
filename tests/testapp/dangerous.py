"""Handlers that hang, ignore interrupts, or kill their process."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import logging
import os
import re
import resource
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from django.db import connection

from django_jobqueue import JobContext, job

logger = logging.getLogger("tests.testapp")

# CDLL releases the interpreter lock during a call, PyDLL holds it.
_libc = ctypes.CDLL(None)
_libc_with_lock = ctypes.PyDLL(None)


def write_line(ledger: str, line: str) -> None:
    """Append one line in one write: it is complete, or missing."""
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
    """Hang in a C call that no exception interrupts; other threads run on."""
    _libc.sleep(seconds)


@job(timeout=0.5, max_attempts=1)
def hang_with_the_lock(seconds: int = 600, touch: str = "") -> None:
    """Stop every thread of the process: a C call that holds the interpreter lock."""
    if touch:
        Path(touch).touch()
    _libc_with_lock.sleep(seconds)


@job(timeout=0.5, max_attempts=1)
def match_for_ever() -> None:
    """Match a catastrophic regular expression: in C, with the interpreter lock."""
    re.match(r"(a|aa)+$", "a" * 200 + "b")


@job(timeout=0.5, max_attempts=1)
def spin_for_ever() -> None:
    """Run a busy loop in Python, which a time-out interrupts."""
    while True:
        pass


@job(timeout=0.5, max_attempts=1)
def swallow_everything() -> None:
    """Run a loop that ignores every exception."""
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
def exit_quietly(ledger: str) -> None:
    """End the process with exit code 0."""
    write_line(ledger, "start")
    os._exit(0)


@job(max_attempts=10)
def kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@job(max_attempts=10)
def eat_memory() -> None:
    """Allocate up to the limit, like C code that does not check for NULL."""
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


@job(max_attempts=10, timeout=600)
def block_logging() -> None:
    """Hold the locks of all log handlers until the process ends."""
    for handler in logging.getLogger().handlers:
        handler.acquire()
    time.sleep(600)


@job
def leave_executor(hook: str) -> int:
    """Leave a thread that Python waits for at its exit, and an exit hook."""
    ThreadPoolExecutor().submit(time.sleep, 600)
    atexit.register(Path(hook).touch)
    return os.getpid()


@job(timeout=0.4, max_attempts=1)
def log_for_ever() -> None:
    while True:
        logger.warning("still here")
        time.sleep(0.01)


@job(timeout=0.4, max_attempts=1)
def log_without_a_pause() -> None:
    while True:
        logger.warning("still here")


@job(timeout=0.4, max_attempts=1, takes_context=True)
def report_for_ever(context: JobContext) -> None:
    while True:
        context.progress(0.5)


@job(timeout=0.4, max_attempts=1)
def swallow_errors_of_queries() -> None:
    """Start the next query as soon as the previous one was cancelled."""
    long = "SELECT pg_sleep(1)"
    if connection.vendor == "sqlite":
        long = (
            "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n"
            " LIMIT 3000000) SELECT count(*) FROM n"
        )
    while True:
        try:
            with connection.cursor() as cursor:
                cursor.execute(long)
        except Exception:
            continue


@job(timeout=0.4, max_attempts=1)
def connect_for_ever() -> None:
    """Open a connection, from the pool if there is one, and close it, in a loop."""
    while True:
        connection.ensure_connection()
        connection.close()


@job
def break_log() -> None:
    """Make the output of each log handler a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            os.dup2(writer, handler.stream.fileno())
    os.close(writer)


@job
def signal_process_group(number: str) -> None:
    """Signal the process group, like a shell script that ends its processes."""
    subprocess.run(["sh", "-c", f"kill -{number} 0"], check=False)


def exit_in_backoff(attempt: int, error: BaseException) -> float:
    os._exit(7)


@job(max_attempts=5, backoff=exit_in_backoff)
def exit_after_the_handler(ledger: str) -> None:
    """Fail, with a backoff function that ends the process."""
    write_line(ledger, "start")
    raise ValueError
