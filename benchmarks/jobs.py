"""The measured handlers as jobs of our system."""

from __future__ import annotations

from benchmarks import handlers
from django_jobqueue import job


@job
def nothing() -> None:
    handlers.nothing()


@job
def stamp(sent: int) -> None:
    handlers.stamp(sent)


@job
def sleep() -> None:
    handlers.sleep()


@job
def burn() -> None:
    handlers.burn()


@job
def write() -> None:
    handlers.write()


@job
async def asleep() -> None:
    await handlers.asleep()
