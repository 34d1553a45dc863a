"""Discovery: which modules a worker imports, and the warning for handlers elsewhere.

A worker imports the `jobs` and `tasks` modules of the installed apps, and whatever is
imported with them while Django starts. A handler in any other module can be enqueued by
the process that imports it, but no worker would find it.
"""

from __future__ import annotations

import warnings
from types import CodeType

from django.apps import apps

DISCOVERED = ("jobs", "tasks")
# Module → the warning about it, for the system check.
unreachable: dict[str, str] = {}


def is_discovered(module: str) -> bool:
    """Say whether autodiscover() imports this module."""
    config = apps.get_containing_app_config(module)
    if config is None:
        return False
    inside = module.removeprefix(config.name).lstrip(".")
    return inside.partition(".")[0] in DISCOVERED


def warn_if_unreachable(name: str, code: CodeType, module: str | None) -> None:
    """Warn about a handler in a module that a worker does not import.

    Warn as well if django_jobqueue itself is not installed: enqueueing would only say
    that a table is missing.

    Until Django has started, everything imported is imported by a worker's start too.
    Test modules may declare handlers of their own.
    """
    # None: made by exec() without a module.
    if not apps.ready or module is None:
        return
    if not apps.is_installed("django_jobqueue"):
        text = (
            f"The handler {name!r} needs tables that this project does not have. Add "
            f"'django_jobqueue' to INSTALLED_APPS and run: manage.py migrate"
        )
    elif _is_of_tests(module) or is_discovered(module):
        return
    else:
        text = unreachable[module] = describe_unreachable(module, name)
    warnings.warn_explicit(
        text,
        RuntimeWarning,
        filename=code.co_filename,
        lineno=code.co_firstlineno,
        module=module,
    )


def describe_unreachable(module: str, name: str = "") -> str:
    """Say why no worker finds the handlers of a module, and what to do."""
    what = f"The handler {name!r} is in {module}" if name else f"{module} has handlers"
    config = apps.get_containing_app_config(module)
    if config is not None:
        return (
            f"{what}, which workers do not import: they would not find it. Move it to "
            f"{config.name}.jobs, or import it there."
        )
    package = _find_package(module)
    cure = (
        f"Add {package!r} to INSTALLED_APPS."
        if package
        else "Move it to the `jobs` module of an installed app."
    )
    joint = ", which belongs" if name else ", but belongs"
    return (
        f"{what}{joint} to no app in INSTALLED_APPS: workers would not find it. {cure}"
    )


def _find_package(module: str) -> str:
    """Return the package that would make this module a discovered one, or ""."""
    parts = module.split(".")
    places = [place for place, part in enumerate(parts) if part in DISCOVERED]
    return ".".join(parts[: places[0]]) if places else ""


def _is_of_tests(module: str) -> bool:
    return any(part.startswith(("test", "conftest")) for part in module.split("."))
