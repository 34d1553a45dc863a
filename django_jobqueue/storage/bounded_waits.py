"""Time limits for statements on Django's connection, which sets none.

Used by the worker's loops for work row by row after a batch has failed: a trigger or a
lock must not block the loop for longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from .database import Database

LIMIT_WAITS = """
    SELECT
        set_config('lock_timeout', %(lock)s::text, true),
        set_config('statement_timeout', %(statement)s::text, true)
"""

WAIT_AS_BEFORE = """
    SET LOCAL lock_timeout TO DEFAULT;
    SET LOCAL statement_timeout TO DEFAULT
"""


@contextmanager
def bounded_waits(
    db: Database, *, lock_ms: int = 1_000, statement_ms: int = 10_000
) -> Iterator[None]:
    """Limit statements and lock waits. PostgreSQL only, inside a transaction."""
    if connections[db.alias].vendor != "postgresql":
        yield
        return
    limits = {"lock": f"{lock_ms}ms", "statement": f"{statement_ms}ms"}
    with connections[db.alias].cursor() as cursor:
        cursor.execute(LIMIT_WAITS, limits)
        yield
        cursor.execute(WAIT_AS_BEFORE)
