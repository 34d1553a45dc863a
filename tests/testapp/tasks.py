"""Handlers and tasks that autodiscovery finds here, since they are not in `jobs`."""

from .chores import add, fail_as_told, make_group, tell
from .hostile_exceptions import raise_atomically, raise_in_coroutine, raise_in_thread

__all__ = [
    "add",
    "fail_as_told",
    "make_group",
    "raise_atomically",
    "raise_in_coroutine",
    "raise_in_thread",
    "tell",
]
