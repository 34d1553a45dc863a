"""Handlers that keep a ledger outside the database: what ran is known, whatever the
database says of it. For tests/faults, which hold the two against each other.

Each returns its fence, so that a success tells under which claim it was reached.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

from django_jobqueue import JobContext, job

from .dangerous import write_line
from .models import Effect

# More than any test takes from a job: exceptions are not what is tried here.
MOST = 1000


@job(takes_context=True, max_attempts=MOST, backoff=0)
def toil(context: JobContext, ledger: str, seconds: float = 0.0, fails: int = 0) -> int:
    begin(context, ledger)
    time.sleep(seconds)
    fail(context, fails)
    leave_effect(context, ledger)
    return context.fence


@job(takes_context=True, max_attempts=MOST, backoff=0)
async def toil_async(
    context: JobContext, ledger: str, seconds: float = 0.0, fails: int = 0
) -> int:
    begin(context, ledger)
    await asyncio.sleep(seconds)
    fail(context, fails)
    leave_effect(context, ledger)
    return context.fence


@job(takes_context=True, max_attempts=MOST, backoff=0, atomic=True)
def toil_atomically(
    context: JobContext, ledger: str, seconds: float = 0.0, fails: int = 0
) -> int:
    begin(context, ledger)
    time.sleep(seconds)
    fail(context, fails)
    Effect.objects.create(name=str(context.fence), job_id=context.job_id)
    leave_effect(context, ledger)
    return context.fence


@job(takes_context=True, max_attempts=1)
def toil_once(context: JobContext, ledger: str, seconds: float = 0.0) -> int:
    """One attempt: at most one start, and dead after a crash or a loss."""
    begin(context, ledger)
    time.sleep(seconds)
    leave_effect(context, ledger)
    return context.fence


@job(takes_context=True, max_attempts=MOST, backoff=0)
def toil_aloud(context: JobContext, ledger: str, seconds: float = 0.0) -> int:
    """Report progress all the time, with the fence in every word."""
    begin(context, ledger)
    for step in range(20):
        context.progress(step / 20, str(context.fence))
        time.sleep(seconds / 20)
    leave_effect(context, ledger)
    context.progress(1, str(context.fence))
    return context.fence


@job(takes_context=True, max_attempts=MOST, backoff=0)
def kill_once(context: JobContext, ledger: str) -> int:
    """Kill the process the first time."""
    begin(context, ledger)
    marker = Path(f"{ledger}-{context.job_id}")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    leave_effect(context, ledger)
    return context.fence


def begin(context: JobContext, ledger: str) -> None:
    write_line(ledger, f"start {context.job_id} {context.fence}")


def leave_effect(context: JobContext, ledger: str) -> None:
    write_line(ledger, f"end {context.job_id} {context.fence}")


def fail(context: JobContext, times: int) -> None:
    if context.attempt <= times:
        raise ConnectionError(f"attempt {context.attempt}")
