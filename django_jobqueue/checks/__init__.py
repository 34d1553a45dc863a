"""System checks: `manage.py check` finds mistakes before a worker starts.

One module for each subject. All checks but one use no database; that one runs only if
Django is given the databases to check. docs/reference/checks.md has the cause and the
fix of each.
"""

from .databases import (
    check_database,
    check_journal,
    check_pool,
    check_routers,
)
from .handlers import check_handlers, check_middleware
from .installed_apps import check_installed_apps
from .options import check_options
from .project import check_command, check_foreign_keys

__all__ = [
    "check_command",
    "check_database",
    "check_foreign_keys",
    "check_handlers",
    "check_installed_apps",
    "check_journal",
    "check_middleware",
    "check_options",
    "check_pool",
    "check_routers",
]
