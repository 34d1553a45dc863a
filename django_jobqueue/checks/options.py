"""Checks of JOBQUEUE, its environment variables and the settings it depends on."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from ..options import read_options


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
                "USE_TZ is False; django_jobqueue needs datetimes with a time zone.",
                hint="Set USE_TZ = True. TIME_ZONE still sets the zone people see.",
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
