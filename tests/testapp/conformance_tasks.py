"""The tasks that BackendConformance runs.

Reloaded for each backend under test: `@task` takes its class from the backend in TASKS.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from django_jobqueue.backend.api import task


@task
def noop() -> None:
    """Do nothing."""


@task
def add(x: int, y: int = 1) -> int:
    return x + y


@task
def echo(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": list(args), "kwargs": kwargs}


@task
async def add_async(x: int, y: int = 1) -> int:
    await asyncio.sleep(0)
    return x + y


@task
def fail(message: str) -> None:
    raise ValueError(message)


@task
async def fail_async(message: str) -> None:
    raise ValueError(message)


@task
def leave() -> None:
    raise SystemExit(3)


@task
def return_object() -> object:
    return object()


@task(takes_context=True)
def return_attempt(context: Any) -> list[Any]:
    result = context.task_result
    return [context.attempt, result.attempts, result.status, result.id]


@task(takes_context=True)
async def return_attempt_async(context: Any) -> int:
    return int(context.attempt)


@task
def note(path: str, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(line + "\n")


@task
def fail_until(path: str, attempts: int) -> int:
    """Fail until the file has that many lines; each attempt adds one."""
    with Path(path).open("a") as file:
        file.write("attempt\n")
    count = len(Path(path).read_text().splitlines())
    if count < attempts:
        raise ConnectionError(f"attempt {count}")
    return count


@task
def linger(path: str, seconds: float) -> str:
    """Write a line, and sleep in the first run only."""
    with Path(path).open("a") as file:
        file.write("started\n")
    if len(Path(path).read_text().splitlines()) == 1:
        time.sleep(seconds)
    return "done"
