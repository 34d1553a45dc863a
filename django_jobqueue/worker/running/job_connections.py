"""Django's connections in job threads, cleaned around each job.

As Django does around a request. Called by the attempts, the event loop and the thread
that sends signals, each for its own thread.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any

from django.core.cache import close_caches
from django.db import connections, reset_queries
from django.db.backends.signals import connection_created

from ...log_events import Event
from .interrupts import raise_wanted

logger = logging.getLogger("django_jobqueue.worker")

# CONN_MAX_AGE = 0 means in a worker: closed when idle for a second, or after this long.
# Closing after each job cost 4.6 ms a job, against 0.3.
MAX_USE_SECONDS = 60.0
# Between two calls of close_caches().
CLOSE_CACHES_SECONDS = 1.0


class _Upkeep(threading.local):
    """What this thread has open. Reading that from Django cost 20 µs a job."""

    has_connections = False
    caches_closed_at = 0.0

    def __init__(self) -> None:
        # All connections this thread has ever opened, for cancel_queries().
        self.wrappers: list[Any] = []


_upkeep = _Upkeep()


def _note_connection(*, connection: Any, **kwargs: Any) -> None:
    _upkeep.has_connections = True
    if connection not in _upkeep.wrappers:
        _upkeep.wrappers.append(connection)
    # A handler that reconnects in a loop is hardly ever where it may be interrupted.
    raise_wanted()


def list_connections() -> list[Any]:
    """Return Django's connections of this thread, in a list that grows with them."""
    return _upkeep.wrappers


connection_created.connect(_note_connection)


def needs_reset() -> bool:
    """Return whether reset_connections() has anything to do in this thread."""
    return (
        _upkeep.has_connections
        or time.monotonic() - _upkeep.caches_closed_at > CLOSE_CACHES_SECONDS
    )


def reset_connections(*, is_suspect: bool = False) -> None:
    """Make this thread's connections usable for the next job.

    A connection that a job left in a transaction, or that an interruption may have hit
    in the middle of a statement (`is_suspect`), is closed.
    """
    now = time.monotonic()
    if now - _upkeep.caches_closed_at > CLOSE_CACHES_SECONDS:
        _upkeep.caches_closed_at = now
        close_caches()
    if _upkeep.has_connections:
        reset_queries()
        _reset_all(is_suspect=is_suspect)


def _reset_all(*, is_suspect: bool) -> None:
    _upkeep.has_connections = False
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        # True until the next reset finds it closed.
        _upkeep.has_connections = True
        try:
            _reset_one(connection, is_suspect=is_suspect)
        except Exception as error:
            _drop(connection, error)


def _reset_one(connection: Any, *, is_suspect: bool) -> None:
    # Django takes every SQLite connection to be usable.
    is_broken = connection.errors_occurred and connection.vendor == "sqlite"
    is_broken = is_broken or _is_closed(connection.connection)
    is_in_transaction = connection.in_atomic_block or not connection.get_autocommit()
    if is_suspect or is_broken or is_in_transaction:
        _abandon(connection)
        return
    if _is_closed_at_once(connection):
        # Django would close it now; here the next jobs may use it too.
        connection.close_at = max(
            connection.close_at or 0.0, _find_opened(connection) + MAX_USE_SECONDS
        )
    connection.close_if_unusable_or_obsolete()


def _is_closed(raw: Any) -> bool:
    """Return whether a job has closed the driver's connection below Django's."""
    try:
        # sqlite3 has no such attribute, but this one raises on a closed connection.
        return bool(raw.closed if hasattr(raw, "closed") else raw.total_changes < 0)
    except Exception:
        return True


def close_idle_connections() -> None:
    """Close connections with CONN_MAX_AGE = 0: this thread had no job for a while."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and _is_closed_at_once(connection):
            try:
                connection.close()
            except Exception as error:
                _drop(connection, error)


def _drop(connection: Any, error: Exception) -> None:
    """Drop a connection object that cannot be closed. Django makes a new one at the
    next use; the old session ends with the object."""
    with suppress(Exception):
        del connections[connection.alias]
    if connection in _upkeep.wrappers:
        _upkeep.wrappers.remove(connection)
    logger.warning(
        Event("a broken connection is dropped", alias=connection.alias, error=error)
    )


def _is_closed_at_once(connection: Any) -> bool:
    settings = connection.settings_dict
    # A pool's connection goes back to the pool at once, which costs almost nothing.
    return settings["CONN_MAX_AGE"] == 0 and not settings["OPTIONS"].get("pool")


def _find_opened(connection: Any) -> float:
    """Return when the connection was opened; Django only knows when to close it."""
    raw = connection.connection
    opened: float | None = getattr(connection, "_jobqueue_opened", (None, None))[1]
    if opened is None or connection._jobqueue_opened[0] is not raw:
        opened = time.monotonic()
        connection._jobqueue_opened = (raw, opened)
    return opened


def _abandon(connection: Any) -> None:
    connection.needs_rollback = False
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.run_on_commit = []
    connection.close()
