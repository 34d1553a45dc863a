"""Tasks of django.tasks, found through tasks.py."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group

from django_jobqueue.backend.api import task
from django_jobqueue.backend.task import JobTask


@task
def add(x: int, y: int = 1) -> int:
    return x + y


@task
def positional(x: int, /, *rest: int) -> int:
    return x + sum(rest)


@task
def fail_as_told(name: str) -> None:
    raise {"lookup": LookupError, "value": ValueError}[name]("as told")


# Options that only code can set, for every version of Django.
fail_as_told: JobTask = fail_as_told.using(discard_on=LookupError, max_attempts=2)


@task
def make_group(name: str, *, fail: bool = False) -> None:
    Group.objects.create(name=name)
    if fail:
        raise ValueError(name)


make_group: JobTask = make_group.using(atomic=True, max_attempts=1)


@task
def return_function() -> Any:
    return lambda: None


@task
async def return_function_async() -> Any:
    return lambda: None


@task
def return_tuple() -> Any:
    return {"pair": (1, b"two")}


@task(takes_context=True)
def tell(context: Any, word: str) -> list[Any]:
    context.progress(0.5, "half")
    return [word, context.attempt, context.max_attempts, str(context.job_id)]


def renamed(x: int) -> int:
    return x * 2


# A task under another name than its function's.
double: JobTask = task(renamed)
