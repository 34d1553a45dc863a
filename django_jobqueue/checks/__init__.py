"""System checks: `manage.py check` says what is wrong before a worker has to.

One module for each thing that is looked at. All but one touch no database; that one
runs only where Django is told which databases to check. docs/reference/checks.md has
cause and cure of each.
"""

from .databases import (
    check_database,
    check_journal,
    check_pool,
    check_routers,
)
from .handlers import check_handlers, check_middleware
from .options import check_options
from .project import check_command, check_foreign_keys

__all__ = [
    "check_command",
    "check_database",
    "check_foreign_keys",
    "check_handlers",
    "check_journal",
    "check_middleware",
    "check_options",
    "check_pool",
    "check_routers",
]
