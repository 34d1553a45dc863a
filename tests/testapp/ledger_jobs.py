"""Handlers that keep a ledger outside the database, for tests/faults.

The tests compare the ledger with the database. Each handler returns its fence, so the
result of a success shows the claim that reached it.
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

# More than any test uses up: these tests are not about exceptions.
MAX_ATTEMPTS = 1000


@job(takes_context=True, max_attempts=MAX_ATTEMPTS, backoff=0)
def work(context: JobContext, ledger: str, seconds: float = 0.0, fails: int = 0) -> int:
    begin(context, ledger)
    time.sleep(seconds)
    fail(context, fails)
    leave_effect(context, ledger)
    return context.fence


@job(takes_context=True, max_attempts=MAX_ATTEMPTS, backoff=0)
async def work_async(
    context: JobContext, ledger: str, seconds: float = 0.0, fails: int = 0
) -> int:
    begin(context, ledger)
    await asyncio.sleep(seconds)
    fail(context, fails)
    leave_effect(context, ledger)
    return context.fence


@job(takes_context=True, max_attempts=MAX_ATTEMPTS, backoff=0, atomic=True)
def work_atomically(
    context: JobContext, ledger: str, seconds: float = 0.0, fails: int = 0
) -> int:
    begin(context, ledger)
    time.sleep(seconds)
    fail(context, fails)
    Effect.objects.create(name=str(context.fence), job_id=context.job_id)
    leave_effect(context, ledger)
    return context.fence


@job(takes_context=True, max_attempts=1)
def work_once(context: JobContext, ledger: str, seconds: float = 0.0) -> int:
    """Start at most once; the job is dead after a crash or a loss."""
    begin(context, ledger)
    time.sleep(seconds)
    leave_effect(context, ledger)
    return context.fence


@job(takes_context=True, max_attempts=MAX_ATTEMPTS, backoff=0)
def work_with_progress(context: JobContext, ledger: str, seconds: float = 0.0) -> int:
    """Report progress 21 times, with the fence as the note."""
    begin(context, ledger)
    for step in range(20):
        context.progress(step / 20, str(context.fence))
        time.sleep(seconds / 20)
    leave_effect(context, ledger)
    context.progress(1, str(context.fence))
    return context.fence


@job(takes_context=True, max_attempts=MAX_ATTEMPTS, backoff=0)
def kill_once(context: JobContext, ledger: str) -> int:
    """Kill the process in the first run."""
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
