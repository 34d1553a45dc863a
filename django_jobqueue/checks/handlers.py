"""Checks of the registered handlers and of the middleware around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from .. import registry
from ..exceptions import ConfigurationError
from ..options import read_options

if TYPE_CHECKING:
    from ..handlers import Handler


@register("jobqueue")
def check_handlers(**kwargs: Any) -> list[CheckMessage]:
    """E010: two handlers of one name; E011: an unknown database; W012: atomic with
    several databases."""
    found: list[CheckMessage] = [
        Error(
            f"Two handlers are named {name!r}: {first} and {second}.",
            hint="Rename one: @job('another.name').",
            id="jobqueue.E010",
        )
        for name, first, second in registry.duplicates
    ]
    options, _ = read_options({})
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
        others = [alias for alias in made.databases if alias != options.database]
        if made.atomic and others:
            found.append(_warn_of_others(made, options.database, others))
    return found


def _warn_of_others(
    made: Handler[..., Any], database: str, others: list[str]
) -> CheckMessage:
    names = ", ".join(map(repr, others))
    return Warning(
        f"The handler {made.name!r} is atomic and writes to {names} too, but only "
        f"what it writes to {database!r}, where the jobs are, is there exactly once.",
        hint=(
            f"{database!r} commits last: after a crash in between, the job runs again. "
            f"See that its writes to {names} may be repeated, then silence this."
        ),
        id="jobqueue.W012",
    )


@register("jobqueue")
def check_middleware(**kwargs: Any) -> list[CheckMessage]:
    """E030: a path of MIDDLEWARE has no import; E031: it does not fit a handler."""
    # Imported here: web processes import the checks and need no middleware of jobs.
    from ..middleware import import_factory

    options, _ = read_options({})
    found: list[CheckMessage] = []
    for path in options.middleware:
        try:
            factory = import_factory(path)
        except ConfigurationError as error:
            hint = "A worker does not start without it. Correct the path or the import."
            found.append(Error(str(error), hint=hint, id="jobqueue.E030"))
            continue
        for made in _find_unfit(factory):
            kind = "async" if made.is_async else "sync"
            found.append(
                Error(
                    f"The middleware {path!r} cannot run around {kind} handlers, such "
                    f"as {made.name!r}.",
                    hint=(
                        "Make it both, with sync_and_async_middleware of "
                        "django.utils.decorators."
                    ),
                    id="jobqueue.E031",
                )
            )
    return found


def _find_unfit(factory: Any) -> list[Handler[..., Any]]:
    """Return the first handler of each kind that a middleware cannot run around."""
    from ..middleware import is_capable

    first: dict[bool, Handler[..., Any]] = {}
    for made in registry.all_handlers().values():
        if not is_capable(factory, is_async=made.is_async):
            first.setdefault(made.is_async, made)
    return list(first.values())
