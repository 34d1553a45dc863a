"""Connections of a worker: its own to the jobs' database, and Django's in job threads.

The claim, finish, listen and beat threads own one psycopg connection each on
PostgreSQL, so that no job can exhaust or poison it. Job threads use Django's
connections only, cleaned around each job as Django cleans them around a request.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from django.core.cache import close_caches
from django.db import connections, reset_queries
from django.db.backends.signals import connection_created

from ..lifecycle.database import Database
from ..signals import Event

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger("django_jobqueue.worker")

# CONN_MAX_AGE = 0 means in a worker: closed when idle for a second, or after this long.
# Closing after each job cost 4.6 ms a job, against 0.3.
LONGEST_USE = 60.0
CANCEL_TIMEOUT = 1.0

# Plans must not depend on statistics: a queue is empty at one moment and full at the
# next, and a generic plan made on an empty one would walk the table for ever after.
SESSION = {
    "statement_timeout": "5s",
    "lock_timeout": "1s",
    "idle_in_transaction_session_timeout": "60s",
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "timezone": "UTC",
}


def find_pool_size(alias: str) -> int | None:
    """Return how many connections Django's pool has at most; None: there is no pool."""
    pool = connections[alias].settings_dict["OPTIONS"].get("pool")
    if not pool:
        return None
    # psycopg_pool's own default for both sizes is 4.
    sizes = pool if isinstance(pool, dict) else {}
    return int(sizes.get("max_size") or sizes.get("min_size", 4))


def open_database(alias: str, *, name: str) -> Database:
    """Open the handle of one worker thread; on PostgreSQL, a connection of its own."""
    if connections[alias].vendor != "postgresql":
        return Database(alias=alias)
    return Database(alias=alias, own=_connect(alias, name=name))


def close_database(db: Database) -> None:
    """Close what open_database() opened, and what a portable arrow used beside it.

    Prune goes through Django's connection of the thread: one that the server has ended
    would stay broken for as long as the worker lives.
    """
    if db.own is not None:
        db.own.close()
    connections[db.alias].close()


def _connect(alias: str, *, name: str) -> psycopg.Connection[Any]:
    import psycopg
    from psycopg.types.string import TextLoader

    # Anew at each connect: a password may be a token that expires.
    params = connections[alias].get_connection_params()
    for django_only in ("cursor_factory", "context"):
        params.pop(django_only, None)
    session = " ".join(f"-c {key}={value}" for key, value in _escape(SESSION).items())
    params |= {
        "autocommit": True,
        "prepare_threshold": 0,
        "options": f"{params.get('options', '')} {session}".strip(),
        "application_name": f"jobqueue {name}",
        "connect_timeout": params.get("connect_timeout", 10),
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
    }
    connection: psycopg.Connection[Any] = psycopg.connect(**params)
    # As Django's connections do: the job's thread decodes it, not the claim's.
    connection.adapters.register_loader("jsonb", TextLoader)
    return connection


def _escape(settings: dict[str, str]) -> dict[str, str]:
    return {key: value.replace(" ", "\\ ") for key, value in settings.items()}


def use_immediate_transactions(alias: str) -> None:
    """Make every SQLite transaction of this process take the write lock at its begin.

    Without it four processes with 4,000 jobs saw 3,979 times "database is locked".
    """
    connection = connections[alias]
    if connection.vendor == "sqlite":
        connection.settings_dict["OPTIONS"]["transaction_mode"] = "IMMEDIATE"
        connection.settings_dict["OPTIONS"].setdefault("timeout", 30)
        connection.close()


class _Upkeep(threading.local):
    """What this thread has open. Asking Django each time cost 20 µs a job."""

    has_connections = False
    caches_closed_at = 0.0

    def __init__(self) -> None:
        # Everything this thread has ever connected with, for cancel_queries().
        self.wrappers: list[Any] = []


_upkeep = _Upkeep()


def _note_connection(*, connection: Any, **kwargs: Any) -> None:
    _upkeep.has_connections = True
    if connection not in _upkeep.wrappers:
        _upkeep.wrappers.append(connection)


def list_connections() -> list[Any]:
    """Return Django's connections of this thread, in a list that grows with them."""
    return _upkeep.wrappers


def cancel_queries(wrappers: list[Any]) -> None:
    """Break off the SQL that another thread waits for, if it does."""
    for wrapper in list(wrappers):
        raw = wrapper.connection
        try:
            if raw is not None and wrapper.vendor == "postgresql":
                raw.cancel_safe(timeout=CANCEL_TIMEOUT)
            elif raw is not None and wrapper.vendor == "sqlite":
                raw.interrupt()
        # The connection may be gone at this moment: then there is nothing to cancel.
        except Exception as error:
            logger.debug(Event("cancelling a query failed", error=error))


def find_backends(wrappers: list[Any]) -> tuple[int, ...]:
    """Return the process ids of the PostgreSQL backends behind these connections."""
    pids = []
    for wrapper in list(wrappers):
        try:
            if wrapper.vendor == "postgresql" and wrapper.connection is not None:
                pids.append(int(wrapper.connection.info.backend_pid))
        # Closed at this moment by its own thread: then it has no backend.
        except Exception as error:
            logger.debug(Event("a connection has no backend", error=error))
    return tuple(pids)


connection_created.connect(_note_connection)


def tidy_connections(*, is_suspect: bool = False) -> None:
    """Leave this thread's connections fit for the next job.

    One that a job left in a transaction, or that an interruption may have hit in the
    middle of something (`is_suspect`), is closed.
    """
    now = time.monotonic()
    if now - _upkeep.caches_closed_at > 1.0:
        _upkeep.caches_closed_at = now
        close_caches()
    if _upkeep.has_connections:
        reset_queries()
        _tidy(is_suspect=is_suspect)


def _tidy(*, is_suspect: bool) -> None:
    _upkeep.has_connections = False
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        # Kept until the next look finds it closed.
        _upkeep.has_connections = True
        if is_suspect or connection.in_atomic_block or not connection.get_autocommit():
            _abandon(connection)
            continue
        if _is_closed_at_once(connection):
            # Django would close it now; here it may serve the next jobs too.
            connection.close_at = max(
                connection.close_at or 0.0, _find_opened(connection) + LONGEST_USE
            )
        connection.close_if_unusable_or_obsolete()


def close_idle_connections() -> None:
    """Close what CONN_MAX_AGE = 0 asks for: the thread has had no job lately."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and _is_closed_at_once(connection):
            connection.close()


def _is_closed_at_once(connection: Any) -> bool:
    settings = connection.settings_dict
    # A pool's connection goes back to the pool at once, which costs next to nothing.
    return settings["CONN_MAX_AGE"] == 0 and not settings["OPTIONS"].get("pool")


def _find_opened(connection: Any) -> float:
    """Return when the connection was opened; Django keeps only when it is to close."""
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
