"""Cancelling the SQL of a handler that runs in another thread.

Used by in_flight.py to interrupt an attempt. Every function takes Django's connections
of that thread, which may close them at any moment.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.db import connections

from ...log_events import Event
from ...options import get_options
from ...storage.poolers import has_false_pids

logger = logging.getLogger("django_jobqueue.worker")

CANCEL_TIMEOUT_SECONDS = 1.0
# PQTRANS_ACTIVE of libpq.
ACTIVE = 1


def interrupt_queries(wrappers: Sequence[Any]) -> None:
    """Interrupt the SQLite statements of another thread. Does not wait."""
    for wrapper in list(wrappers):
        raw = wrapper.connection
        if raw is not None and wrapper.vendor == "sqlite":
            # Its thread may close it at this moment: then there is nothing to do.
            with suppress(Exception):
                raw.interrupt()


def has_running_query(wrappers: Sequence[Any]) -> bool:
    """Return whether another thread waits for PostgreSQL. Does not wait itself."""
    return any(map(_is_running, list(wrappers)))


def cancel_queries(wrappers: Sequence[Any]) -> list[Exception]:
    """Cancel the SQL of another thread on PostgreSQL; return the errors of that.

    Waits for the server: CANCEL_TIMEOUT_SECONDS, or longer with a libpq before 17.
    Nothing is logged here: the caller holds a lock.
    """
    errors = []
    for wrapper in list(wrappers):
        try:
            if _is_running(wrapper):
                wrapper.connection.cancel_safe(timeout=CANCEL_TIMEOUT_SECONDS)
        # The connection may be closed at this moment: then there is nothing to cancel.
        except Exception as error:
            errors.append(error)
    return errors


def report_cancel_errors(errors: list[Exception]) -> None:
    for error in errors:
        logger.debug(Event("cancelling a query failed", error=error))


def _is_running(wrapper: Any) -> bool:
    raw = wrapper.connection
    if raw is None or wrapper.vendor != "postgresql":
        return False
    try:
        # libpq knows that a command is in progress; no round trip to the server.
        return bool(raw.pgconn.transaction_status == ACTIVE)
    # Its thread has closed it at this moment.
    except Exception:
        return False


def find_backends(wrappers: Sequence[Any]) -> tuple[int, ...]:
    """Return the PostgreSQL backend pids of the connections to the jobs' database.

    On another server the same number is a foreign session, and so is the number that a
    pooler makes up.
    """
    pids: list[int] = []
    if has_false_pids(get_options().database):
        return ()
    for wrapper in list(wrappers):
        # Its thread may close it at this moment: then it has no backend.
        with suppress(Exception):
            if _is_jobs_database(wrapper) and wrapper.connection is not None:
                pids.append(int(wrapper.connection.info.backend_pid))
    return tuple(pids)


def _is_jobs_database(wrapper: Any) -> bool:
    ours = connections.settings[get_options().database]
    theirs = wrapper.settings_dict
    return wrapper.vendor == "postgresql" and all(
        ours.get(key) == theirs.get(key) for key in ("HOST", "PORT", "NAME", "USER")
    )
