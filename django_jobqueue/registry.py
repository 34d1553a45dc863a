"""The registry: the only way from the job type in a row to code.

Decorators register handlers at import; apps.py imports every `jobs` and `tasks` module
when Django is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from .discovery import DISCOVERED, warn_if_unreachable
from .exceptions import UnknownJobType
from .suggestions import suggest

if TYPE_CHECKING:
    from .handlers import Handler
    from .options import Options

_registry: dict[str, Handler[..., Any]] = {}
# Built on first use: a module may still replace its task while it is imported.
_announced: dict[str, Callable[[], Handler[..., Any]]] = {}
# (name, place of the first, place of the second), for the system check.
duplicates: list[tuple[str, str, str]] = []


def get_handler(name: str) -> Handler[..., Any]:
    """Return the handler of that name. Raises UnknownJobType."""
    found = find_handler(name) if isinstance(name, str) else None
    if found is None:
        raise UnknownJobType(_describe_unknown(name))
    return found


def find_handler(name: str) -> Handler[..., Any] | None:
    """Return the handler of that name, or None."""
    found = _registry.get(name)
    if found is None and name in _announced:
        found = _registry[name] = _announced[name]()
    return found


def all_handlers() -> dict[str, Handler[..., Any]]:
    """Return every registered handler by name."""
    for name in list(_announced):
        find_handler(name)
    return dict(sorted(_registry.items()))


def announce(name: str, make: Callable[[], Handler[..., Any]]) -> None:
    """Register a name whose handler is built on first use."""
    if name in _announced:
        # The same module was imported again, for example by a reloader.
        _registry.pop(name, None)
    _announced[name] = make


def autodiscover() -> None:
    """Import the `jobs` and `tasks` modules, or packages, of every installed app."""
    for config in apps.get_app_configs():
        for name in DISCOVERED:
            if config.module and module_has_submodule(config.module, name):
                module = import_module(f"{config.name}.{name}")
                for found in walk_packages(
                    getattr(module, "__path__", ()), f"{module.__name__}."
                ):
                    import_module(found.name)


def register(new: Handler[..., Any]) -> None:
    """Register a handler; the first of a name stays, a second one is reported by the
    system check."""
    known = _registry.setdefault(new.name, new)
    if known is new:
        if "<locals>" not in new.function.__qualname__:
            module = new.target.__module__
            warn_if_unreachable(new.name, new.function.__code__, module)
        return
    is_same = known.function.__code__.co_firstlineno == (
        new.function.__code__.co_firstlineno
    )
    if is_same and _place(known) == _place(new):
        # The same module was imported again, for example by a reloader.
        _registry[new.name] = new
    else:
        duplicates.append((new.name, _place(known), _place(new)))


def _place(made: Handler[..., Any]) -> str:
    return f"{made.target.__module__}.{made.target.__qualname__}"


def find_app_label(module: str) -> str:
    """Return the label of the app a module belongs to, else the module's own name."""
    config = apps.get_containing_app_config(module) if apps.apps_ready else None
    return config.label if config else module


def find_max_attempts(job_type: str, of_job: int | None, options: Options) -> int:
    """Return what the job says, else its handler in this process, else the setting."""
    handler = find_handler(job_type)
    of_handler = None if handler is None else handler.max_attempts
    return of_job or of_handler or options.max_attempts


def _describe_unknown(name: object) -> str:
    where = (
        "Handlers are found in the `jobs` and `tasks` modules of the installed apps; "
        "is the app in INSTALLED_APPS?"
    )
    if callable(name):
        return (
            f"A job type is a text such as 'shop.send_receipt', not {name!r}. Call "
            f"enqueue() of a handler: a function with @job on it."
        )
    hint = suggest(name, _registry, otherwise=where)
    return f"No handler is registered for the job type {name!r}. {hint}"
