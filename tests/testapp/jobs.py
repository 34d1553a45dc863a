"""The handlers that the tests run."""

from __future__ import annotations

import asyncio
import logging

from django_jobqueue import (
    JobContext,
    job,
)

from .models import Effect

logger = logging.getLogger("tests.testapp")


@job
def nothing() -> None:
    """Succeed at once."""


@job
def add(x: int, y: int = 1) -> int:
    return x + y


@job(takes_context=True)
def leave_effect(context: JobContext, name: str) -> str:
    Effect.objects.create(name=name, job_id=context.job_id)
    return name


@job
async def add_async(x: int, y: int = 1) -> int:
    await asyncio.sleep(0)
    return x + y
