"""Handlers that misuse their process, and the healthy ones that run beside them.

For tests/faults/hostile. A handler appends a line to its ledger before it does anything
else, so a test can count its starts.
"""

from __future__ import annotations

import asyncio
import ctypes
import decimal
import gc
import logging
import os
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from django.db import DatabaseError, connection, connections, transaction
from django.utils import timezone, translation

from django_jobqueue import JobContext, job
from django_jobqueue.options import get_options

from . import receivers as receivers
from .dangerous import write_line
from .models import Effect

logger = logging.getLogger("tests.testapp.hostile")

_variable: ContextVar[str] = ContextVar("hostile", default="clean")
# What handlers leave behind must not be collected as garbage.
_left_behind: list[Any] = []
# Kept here: a case replaces the function in the module.
_sleep = time.sleep


# Healthy handlers.


@job(max_attempts=3, backoff=0)
def succeed(number: int = 0) -> int:
    return number


@job(max_attempts=3, backoff=0)
async def succeed_async(number: int = 0) -> int:
    await asyncio.sleep(0)
    return number


@job(max_attempts=3, backoff=0, takes_context=True, atomic=True)
def succeed_atomically(context: JobContext, number: int = 0) -> int:
    Effect.objects.create(name="healthy", job_id=context.job_id)
    return number


@job(max_attempts=3, backoff=0)
def return_context() -> dict[str, str]:
    # Only here: Django refuses to use a connection on the event loop.
    return read_context() | {"autocommit": str(connection.get_autocommit())}


@job(max_attempts=3, backoff=0)
async def return_context_async() -> dict[str, str]:
    return read_context()


def read_context() -> dict[str, str]:
    """Return settings that an earlier job of the thread or process may have changed."""
    return {
        "language": translation.get_language() or "",
        "time zone": timezone.get_current_timezone_name(),
        "decimal precision": str(decimal.getcontext().prec),
        "context variable": _variable.get(),
    }


# Exits, by name, because a payload is JSON.


@job(max_attempts=10, takes_context=True)
def leave_process(context: JobContext, ledger: str, way: str) -> None:
    write_line(ledger, f"{context.job_id} {context.attempt}")
    EXITS[way]()


def _exit_in_thread() -> None:
    threading.Thread(target=os._exit, args=(0,)).start()
    _sleep(30)


def _fork_and_die() -> None:
    """Leave a copy that keeps every pipe and socket of the dead process open."""
    _fork()
    os.kill(os.getpid(), signal.SIGKILL)


EXITS: dict[str, Callable[[], Any]] = {
    "exit 0": lambda: os._exit(0),
    "exit 1": lambda: os._exit(1),
    "exit 9": lambda: os._exit(9),
    "exit 0 in a thread": _exit_in_thread,
    "segmentation fault": lambda: ctypes.string_at(0),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "fork and SIGKILL": _fork_and_die,
}


# Handlers that resist interrupts.


@job(timeout=0.3, max_attempts=1)
def swallow_timeouts() -> None:
    while True:
        with suppress(BaseException):
            _sleep(0.01)


@job(timeout=0.3, max_attempts=1)
async def swallow_timeouts_async() -> None:
    while True:
        with suppress(BaseException):
            await asyncio.sleep(0.01)


@job(timeout=0.3, max_attempts=1)
def swallow_one_timeout() -> str:
    """Return after the time-out: the job has succeeded."""
    with suppress(BaseException):
        while True:
            _sleep(0.01)
    return "returned"


@job(timeout=0.3, max_attempts=1)
def swallow_query_errors() -> None:
    """Swallow errors of queries; the interrupt itself must arrive between two."""
    while True:
        with suppress(Exception), connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SELECT pg_sleep(20)")
            else:
                cursor.execute(
                    "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
                    " SELECT count(*) FROM n"
                )
                cursor.fetchall()


@job(timeout=600, max_attempts=3, backoff=0, takes_context=True)
def resist_cancellation(context: JobContext, ledger: str, way: str) -> None:
    """Ignore a cancellation, or raise another error instead."""
    write_line(ledger, f"{context.job_id} {context.attempt}")
    while True:
        try:
            while True:
                _sleep(0.01)
        except BaseException:
            if way == "raise":
                raise ValueError("instead of the interrupt") from None


@job(timeout=0.4, max_attempts=1)
def log_in_a_loop(pause: float = 0.0) -> None:
    while True:
        logger.warning("a line of many")
        if pause:
            _sleep(pause)


# Results and depth.


@job(max_attempts=1)
def return_bytes(beyond: int) -> str:
    """Return a result that is `beyond` bytes longer than MAX_RESULT_BYTES."""
    return "x" * (get_options().max_result_bytes + beyond - len('""'))


@job(max_attempts=1)
def return_depth(depth: int = 100_000) -> list[Any]:
    result: list[Any] = []
    for _ in range(depth):
        result = [result]
    return result


@job(max_attempts=1)
def recurse() -> int:
    return recurse.function() + 1


@job(max_attempts=1)
def raise_megabytes(size: int = 20_000_000) -> None:
    raise ValueError("x" * size)


# Handlers that misbehave once, then succeed.


@job(max_attempts=1, takes_context=True)
def misbehave(context: JobContext, way: str, ledger: str = "") -> str:
    if ledger:
        write_line(ledger, f"{context.job_id} {context.attempt}")
    WAYS[way](ledger)
    return way


@job(max_attempts=1)
async def misbehave_async(way: str) -> str:
    WAYS[way]("")
    return way


def _fork(ledger: str = "") -> None:
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork in a process with threads.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        _sleep(20)
        os._exit(0)


def _leave_thread(ledger: str) -> None:
    threading.Thread(target=_sleep, args=(600,), daemon=False).start()


def _leave_executor(ledger: str) -> None:
    executor = ThreadPoolExecutor(2)
    executor.submit(_sleep, 600)
    _left_behind.append(executor)


def _exit_a_thread(ledger: str) -> None:
    thread = threading.Thread(target=sys.exit, args=(3,))
    thread.start()
    thread.join()


def _close_connections(ledger: str) -> None:
    connection.ensure_connection()
    connection.connection.close()


def _close_all_connections(ledger: str) -> None:
    connection.ensure_connection()
    connections.close_all()


def _end_backend(ledger: str) -> None:
    with suppress(Exception), connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def _leave_transaction(ledger: str) -> None:
    transaction.atomic().__enter__()
    Effect.objects.create(name="never committed")


def _leave_autocommit_off(ledger: str) -> None:
    connection.set_autocommit(False)
    Effect.objects.create(name="never committed")


def _change_context(ledger: str) -> None:
    translation.activate("de")
    timezone.activate("Asia/Kathmandu")
    decimal.getcontext().prec = 3
    _variable.set("left behind")


def _change_folder(ledger: str) -> None:
    os.chdir("/")


def _close_outputs(ledger: str) -> None:
    """Close stdout and stderr: the next connection gets their descriptors.

    Jobs beside this one may close them again, and that connection with them.
    """
    for descriptor in (1, 2):
        with suppress(OSError):
            os.close(descriptor)
    connections.close_all()
    with suppress(DatabaseError):
        Effect.objects.exists()


def _exhaust_descriptors(ledger: str) -> None:
    """Open files until there is no descriptor left, for a moment."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    taken = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        _sleep(0.5)
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _replace_sleep(ledger: str) -> None:
    def refuse(seconds: float) -> None:
        raise RuntimeError("sleeping is not allowed here")

    time.sleep = refuse


WAYS: dict[str, Callable[[str], Any]] = {
    "fork": _fork,
    "leave a thread": _leave_thread,
    "leave an executor": _leave_executor,
    "exit a thread": _exit_a_thread,
    "close the connection": _close_connections,
    "close all connections": _close_all_connections,
    "end the backend": _end_backend,
    "leave a transaction": _leave_transaction,
    "leave autocommit off": _leave_autocommit_off,
    "change the context": _change_context,
    "change the folder": _change_folder,
    "close the outputs": _close_outputs,
    "exhaust the descriptors": _exhaust_descriptors,
    "disable the garbage collector": lambda ledger: gc.disable(),
    "replace time.sleep": _replace_sleep,
}
