"""What an error of the database means: retry, wait, or blame the row.

Knows Django's errors and those that the drivers raise on the worker's own connections.
"""

from __future__ import annotations

import sqlite3

from django.db import DatabaseError, InterfaceError

from .failures import find_packages, is_kind


def is_database_trouble(error: BaseException) -> bool:
    """Tell whether the database failed, not the job: connection, pool, conflict.

    Knows both Django's errors and those of the worker's own connections.
    """
    cause = _find_driver_error(error)
    packages = find_packages(cause)
    if "psycopg_pool" in packages:
        return True
    if "sqlite3" in packages:
        code = getattr(cause, "sqlite_errorcode", None) or 0
        return code & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
    if "psycopg" not in packages:
        return False
    names = {cls.__name__ for cls in type(cause).__mro__}
    if not names & {"OperationalError", "InterfaceError"}:
        return False
    # psycopg raises OperationalError without a state when the connection is gone.
    state = getattr(cause, "sqlstate", None) or "08000"
    return state in {"40001", "40P01", "53300"} or state.startswith(("08", "57P"))


def is_conflict(error: BaseException) -> bool:
    """Tell whether transactions conflicted: the caller can retry at once."""
    cause = _find_driver_error(error)
    if "psycopg" not in find_packages(cause):
        return False
    return getattr(cause, "sqlstate", None) in {"40001", "40P01"}


def is_lock_wait(error: BaseException) -> bool:
    """Tell whether a statement timed out on a lock of another session."""
    cause = _find_driver_error(error)
    if "psycopg" not in find_packages(cause):
        return False
    return getattr(cause, "sqlstate", None) == "55P03"


def is_cancelled_sql(error: BaseException) -> bool:
    """Tell whether the query that raised this was cancelled."""
    cause = _find_driver_error(error)
    packages = find_packages(cause)
    if "sqlite3" in packages:
        return getattr(cause, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT
    return "psycopg" in packages and getattr(cause, "sqlstate", None) == "57014"


def names_row(error: BaseException) -> bool:
    """Tell whether a time-out of PostgreSQL came while it changed a row.

    Then its context names the row ("while inserting index tuple …") or a trigger. A
    wait for a locked table and a long walk over an index have no context.
    """
    diag = getattr(error.__cause__ or error, "diag", None)
    return bool(getattr(diag, "context", None))


def _find_driver_error(error: BaseException) -> BaseException | None:
    """Return what the driver raised: Django's own errors have it as their cause."""
    is_djangos = is_kind(error, (DatabaseError, InterfaceError))
    return error.__cause__ if is_djangos else error
