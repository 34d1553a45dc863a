"""The database sessions of a process, ended from outside.

Called by the supervisor after it has taken an attempt away: what the attempt began in
the database must not go on, nor hold its locks.
"""

from __future__ import annotations

from collections.abc import Sequence

from .database import Database

# A number may have gone to somebody else's session meanwhile: only those of our role in
# our database are ended, and never the one that asks.
END_BACKENDS = """
    SELECT pg_terminate_backend(backend.pid)
    FROM pg_stat_activity AS backend
    WHERE
        backend.pid = ANY(%(pids)s::integer[])
        AND backend.pid <> pg_backend_pid()
        AND backend.datname = current_database()
        AND backend.usename = current_user
"""


def end_backends(db: Database, pids: Sequence[int]) -> None:
    """End these sessions of the jobs' database; elsewhere than PostgreSQL, nothing."""
    if db.is_postgres and pids:
        db.execute(END_BACKENDS, {"pids": list(pids)})
