"""The measured handlers, the same for every system written in Python.

An adapter in systems/ wraps these functions in whatever its system calls a handler.
Standard library only, except write(), which needs Django.
"""

from __future__ import annotations

import asyncio
import time

from benchmarks.record import count_call, keep_delay

SLEEP_SECONDS = 0.010
BURN_SECONDS = 0.005


def nothing() -> None:
    """Succeed at once."""
    count_call()


def stamp(sent: int) -> None:
    """Record the delay since the job was sent."""
    keep_delay(sent)


def sleep() -> None:
    """Wait 10 ms, like a call to a slow service."""
    time.sleep(SLEEP_SECONDS)
    count_call()


def burn() -> None:
    """Use 5 ms of processor time."""
    end = time.thread_time() + BURN_SECONDS
    while time.thread_time() < end:
        pass
    count_call()


def write() -> None:
    """Insert one row with Django's ORM."""
    from benchmarks.models import Written

    Written.objects.create(text="written by a job")
    count_call()


async def asleep() -> None:
    """Wait 10 ms without a thread."""
    await asyncio.sleep(SLEEP_SECONDS)
    count_call()


async def awrite() -> None:
    """Insert one row with Django's asynchronous ORM."""
    from benchmarks.models import Written

    await Written.objects.acreate(text="written by a job")
    count_call()


SYNC = {"nothing": nothing, "stamp": stamp, "sleep": sleep, "burn": burn}
SYNC["write"] = write
