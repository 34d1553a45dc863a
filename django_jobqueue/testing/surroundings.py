"""The open transactions around an attempt that runs in the thread of a test.

A worker closes a connection that a handler left in a transaction. Here the connection
belongs to the test, so only what the handler opened is rolled back. If the test itself
runs in a transaction, on_commit() hooks run as if the attempt had committed.
"""

from __future__ import annotations

import logging
from typing import Any

from django.db import connections

logger = logging.getLogger("django_jobqueue.testing")


class _LeftOpen(Exception):
    """Raised into a transaction that a handler left open, to roll it back."""


class Surroundings:
    """Django's connections of this thread, as they are before an attempt."""

    def __init__(self, alias: str) -> None:
        # Whether the database of the jobs is in a transaction, as in a TestCase.
        self.is_enclosed = connections[alias].in_atomic_block
        opened = connections.all(initialized_only=True)
        self._depths = {each.alias: len(each.atomic_blocks) for each in opened}
        self._hooks = {each.alias: len(each.run_on_commit) for each in opened}

    def restore(self, *, is_suspect: bool = False) -> None:
        """Roll back the transactions that the handler left open."""
        for connection in connections.all(initialized_only=True):
            depth = self._depths.get(connection.alias, 0)
            while len(connection.atomic_blocks) > depth:
                block = connection.atomic_blocks[-1]
                block.__exit__(_LeftOpen, _LeftOpen(), None)

    def run_hooks(self) -> None:
        """Run the on_commit() hooks of the attempt: the test never commits.

        Raises what a hook raises, unless it was registered as robust.
        """
        for connection in connections.all(initialized_only=True):
            count = self._hooks.get(connection.alias, 0)
            hooks: list[Any] = list(connection.run_on_commit[count:])
            if not connection.in_atomic_block:
                continue
            del connection.run_on_commit[count:]
            for _savepoints, hook, is_robust in hooks:
                _run_hook(hook, is_robust=is_robust)


def _run_hook(hook: Any, *, is_robust: bool) -> None:
    try:
        hook()
    except Exception:
        if not is_robust:
            raise
        logger.exception("a robust on_commit() hook failed")
