"""System checks: `manage.py check` says what is wrong before a worker has to."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from . import registry
from .options import read_options


@register("jobqueue")
def check_options(**kwargs: Any) -> list[CheckMessage]:
    """E001: something in JOBQUEUE or its environment; E002: USE_TZ; E003: DATABASE."""
    options, problems = read_options({})
    found: list[CheckMessage] = [
        Error(problem.message, hint=problem.hint, id="jobqueue.E001")
        for problem in problems
    ]
    if not settings.USE_TZ:
        found.append(
            Error(
                "USE_TZ is False; django_jobqueue compares moments, not wall clocks.",
                hint="Set USE_TZ = True. TIME_ZONE still chooses what people see.",
                id="jobqueue.E002",
            )
        )
    if options.database not in settings.DATABASES:
        known = ", ".join(repr(alias) for alias in settings.DATABASES)
        found.append(
            Error(
                f"JOBQUEUE['DATABASE'] is {options.database!r}, which DATABASES lacks.",
                hint=f"DATABASES has {known}.",
                id="jobqueue.E003",
            )
        )
    return found


@register("jobqueue")
def check_handlers(**kwargs: Any) -> list[CheckMessage]:
    """E010: two handlers of one name; E011: a database nobody knows."""
    found: list[CheckMessage] = [
        Error(
            f"Two handlers are named {name!r}: {first} and {second}.",
            hint="Rename one: @job('another.name').",
            id="jobqueue.E010",
        )
        for name, first, second in registry.duplicates
    ]
    for made in registry.all_handlers().values():
        for alias in made.databases:
            if alias not in settings.DATABASES:
                found.append(
                    Error(
                        f"The handler {made.name!r} names the database {alias!r}, "
                        f"which DATABASES lacks.",
                        hint="Correct databases=… or DATABASES.",
                        id="jobqueue.E011",
                    )
                )
    return found
