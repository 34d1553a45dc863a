"""Handlers that leave something behind, or tell what they were told."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

from asgiref.sync import sync_to_async
from django.db import connection
from django.utils.module_loading import import_string

from django_jobqueue import JobContext, job

from . import sabotage as sabotage


@job
def leave_a_thread(seconds: float = 600.0) -> None:
    """Succeed, and leave a thread that Python waits for at its end."""
    threading.Thread(target=time.sleep, args=(seconds,), daemon=False).start()


@job
async def wait_in_a_thread(touch: str, seconds: float = 600.0) -> None:
    """Wait for a thread of the event loop's pool, which no cancellation reaches."""
    Path(touch).touch()
    await asyncio.to_thread(time.sleep, seconds)


@job(takes_context=True)
def tell_when_told(
    context: JobContext, touch: str, told: str, seconds: float = 0.0
) -> None:
    """Touch one file at the start and another when the worker is about to stop, then
    put things in order for so many seconds."""
    Path(touch).touch()
    while not context.stopping:
        time.sleep(0.01)
    Path(told).touch()
    time.sleep(seconds)


@job
async def tell_backend_async() -> int:
    """Return the process id of the PostgreSQL backend that serves async ORM calls."""
    return await sync_to_async(ask_backend)()


def ask_backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@job
def call_function(path: str, **arguments: str) -> str:
    """Call a function of code that may have changed since."""
    result: str = import_string(path)(**arguments)
    return result
