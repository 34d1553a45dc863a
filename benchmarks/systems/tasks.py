"""The measured handlers as tasks of django.tasks, for its backends."""

from __future__ import annotations

from django.tasks import task

from benchmarks import handlers


@task
def nothing() -> None:
    handlers.nothing()


@task
def stamp(sent: int) -> None:
    handlers.stamp(sent)


@task
def sleep() -> None:
    handlers.sleep()


@task
def burn() -> None:
    handlers.burn()


@task
def write() -> None:
    handlers.write()
