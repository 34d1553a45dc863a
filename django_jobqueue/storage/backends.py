"""Ends the database sessions of a process from outside.

Called by the supervisor after it has taken an attempt away: statements of the attempt
must not go on or hold locks.
"""

from __future__ import annotations

from collections.abc import Sequence

from .database import Database

# The server may have given a pid to another session meanwhile. So this ends only
# sessions of our role in our database that are older than the read of the pid, and
# never its own.
END_BACKENDS = """
    SELECT pg_terminate_backend(backend.pid)
    FROM pg_stat_activity AS backend
    WHERE
        backend.pid = ANY(%(pids)s::integer[])
        AND backend.pid <> pg_backend_pid()
        AND backend.datname = current_database()
        AND backend.usename = current_user
        AND backend.backend_start <= clock_timestamp() - %(age)s * interval '1 second'
"""


# A role assumed by SET ROLE may not end sessions of the role that logged in.
RESET_ROLE = """
    SELECT set_config('role', 'none', true)
"""


def end_backends(db: Database, pids: Sequence[int], *, age: float = 0.0) -> None:
    """End these sessions, whose pids were read `age` seconds ago. PostgreSQL only."""
    if db.is_postgres and pids:
        with db.transaction():
            db.execute(RESET_ROLE, {}, is_rare=True)
            db.execute(END_BACKENDS, {"pids": list(pids), "age": max(0.0, age)})
