"""Writing row by row: the fallback when a batch fails because of one of its rows.

Called by claim_each() and promote_each(). Only the database can refuse such a row, for
example by a user's trigger, so each row is tried in its own bounded transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from ..database_errors import is_database_trouble
from .bounded_waits import bounded_waits
from .database import Database

T = TypeVar("T")

# How long all rows may take, and one of them: a trigger may sleep.
EACH_SECONDS = 2.0
EACH_ROW_MS = 500


def write_each(
    db: Database,
    ids: Iterable[UUID],
    write: Callable[[UUID], T | None],
    *,
    limit: int,
    deadline: float,
) -> tuple[list[T], dict[UUID, str]]:
    """Call `write` for each row in its own transaction, up to `limit` results.

    Return the results that committed, and {id: error} of the rows that were refused. A
    result of None does not count. Stops at `deadline` (monotonic). Raises database
    trouble, which concerns all rows.
    """
    written: list[T] = []
    refused: dict[UUID, str] = {}
    for id in ids:
        if len(written) >= limit or time.monotonic() > deadline:
            break
        try:
            with db.atomic(), bounded_waits(db, lock_ms=100, statement_ms=EACH_ROW_MS):
                result = write(id)
        except Exception as error:
            if is_database_trouble(error):
                raise
            refused[id] = " ".join(str(error).split())[:200]
            continue
        if result is not None:
            written.append(result)
    return written, refused
