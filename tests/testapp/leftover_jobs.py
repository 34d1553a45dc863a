"""Handlers that leave threads or connections behind, and some that report state."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

from asgiref.sync import sync_to_async
from django.db import connection
from django.utils.module_loading import import_string

from django_jobqueue import JobContext, job

from . import worker_faults as worker_faults


@job
def leave_a_thread(seconds: float = 600.0) -> None:
    """Succeed, and leave a thread that Python waits for at its exit."""
    threading.Thread(target=time.sleep, args=(seconds,), daemon=False).start()


@job
async def wait_in_a_thread(touch: str, seconds: float = 600.0) -> None:
    """Wait for a thread of the event loop's pool, which cannot be cancelled."""
    Path(touch).touch()
    await asyncio.to_thread(time.sleep, seconds)


@job(takes_context=True)
def note_when_stopping(
    context: JobContext, touch: str, stopping: str, seconds: float = 0.0
) -> None:
    """Touch one file at the start and another when the worker stops, then sleep."""
    Path(touch).touch()
    while not context.stopping:
        time.sleep(0.01)
    Path(stopping).touch()
    time.sleep(seconds)


@job
async def return_backend_pid_async() -> int:
    """Return the process id of the PostgreSQL backend that serves async ORM calls."""
    return await sync_to_async(read_backend_pid)()


def read_backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@job
def call_function(path: str, **arguments: str) -> str:
    """Call a function of a module that the test may have changed."""
    result: str = import_string(path)(**arguments)
    return result


@job
def leave_threads_with_connections(count: int) -> None:
    """Succeed, and leave threads that hold a connection each."""
    opened = threading.Semaphore(0)

    def hold() -> None:
        connection.ensure_connection()
        opened.release()
        time.sleep(600)

    for _ in range(count):
        threading.Thread(target=hold, daemon=True).start()
    for _ in range(count):
        opened.acquire(timeout=10)
