"""Check for handlers in modules that no worker imports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Warning, register

from .. import registry
from ..discovery import DISCOVERED, describe_unreachable, unreachable

_DEPTH = 3
_JOBS = re.compile(
    r"^(?:from|import) django_jobqueue\b.*^@(?:\w+\.)?(?:job|handler)\b",
    re.MULTILINE | re.DOTALL,
)
_TASKS = re.compile(
    r"^(?:from|import) django[._]tasks\b.*^@(?:\w+\.)?task\b",
    re.MULTILINE | re.DOTALL,
)
_FOREIGN_FOLDERS = {"node_modules", "site-packages", "tests"}


@register("jobqueue")
def check_installed_apps(**kwargs: Any) -> list[CheckMessage]:
    """W015: a module with handlers belongs to no installed app, or is not imported."""
    found = dict(unreachable)
    imported = {
        made.target.__module__ for made in registry.all_handlers().values()
    } - found.keys()
    for module in _find_modules_with_handlers():
        if module not in imported and apps.get_containing_app_config(module) is None:
            found.setdefault(module, describe_unreachable(module))
    return [
        Warning(
            text,
            hint=(
                "A job enqueued with such a handler waits for UNKNOWN_HANDLER_GRACE "
                "and then becomes a dead job."
            ),
            id="jobqueue.W015",
        )
        for _, text in sorted(found.items())
    ]


def _find_modules_with_handlers() -> Iterator[str]:
    """Yield modules below the project's folder whose text declares handlers.

    They are not imported: what the project does not install must not run.
    """
    folder = find_project_folder()
    if folder is None:
        return
    for path in _find_files(folder):
        module = ".".join(path.relative_to(folder).with_suffix("").parts)
        if _declares_handlers(path):
            yield module.removesuffix(".__init__")


def find_project_folder() -> Path | None:
    """Return the folder that holds the settings module's top package, or None."""
    name = getattr(settings, "SETTINGS_MODULE", None)
    if not name:
        return None
    try:
        spec = find_spec(str(name).partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin)
    return path.parent.parent if spec.submodule_search_locations else path.parent


def _find_files(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Yield the `jobs` and `tasks` modules of everything that looks like an app."""
    for path in sorted(folder.iterdir()):
        if depth and _is_own_folder(path):
            if _is_app(path):
                for name in DISCOVERED:
                    yield from sorted(path.glob(f"{name}.py"))
                    yield from sorted(path.glob(f"{name}/*.py"))
            yield from _find_files(path, depth - 1)


def _is_own_folder(path: Path) -> bool:
    """Say whether to look below: not at other projects and their environments."""
    return (
        path.name.isidentifier()
        and path.name not in _FOREIGN_FOLDERS
        and path.is_dir()
        and not (path / "pyvenv.cfg").exists()
        and not (path / "manage.py").exists()
    )


def _is_app(path: Path) -> bool:
    if (path / "settings.py").exists():
        # Of the packages with settings, the project's own is meant.
        return str(settings.SETTINGS_MODULE).partition(".")[0] == path.name
    return any((path / name).exists() for name in ("apps.py", "models.py", "models"))


def _declares_handlers(path: Path) -> bool:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return False
    return bool(_JOBS.search(text) or (_uses_backend() and _TASKS.search(text)))


def _uses_backend() -> bool:
    tasks = getattr(settings, "TASKS", None) or {}
    return any(
        str(each.get("BACKEND", "")).startswith("django_jobqueue.")
        for each in tasks.values()
    )
