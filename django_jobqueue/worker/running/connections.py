"""A worker's own connections to the jobs' database.

The claim, finish, listen and beat threads own one psycopg connection each on
PostgreSQL: no job can exhaust or break it. Job threads use Django's connections only
(job_connections.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections

from ...storage.database import Database
from ...storage.poolers import has_lasting_session

if TYPE_CHECKING:
    import psycopg

# Plans must not depend on statistics: a queue is empty at one moment and full at the
# next, and a generic plan made on an empty queue would scan the table from then on.
SESSION_SETTINGS = {
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
    """Return the maximum size of Django's pool; None: there is no pool."""
    pool = connections[alias].settings_dict["OPTIONS"].get("pool")
    if not pool:
        return None
    # psycopg_pool's own default for both sizes is 4.
    sizes = pool if isinstance(pool, dict) else {}
    return int(sizes.get("max_size") or sizes.get("min_size", 4))


def open_database(alias: str, *, name: str) -> Database:
    """Open the handle of one worker thread; on PostgreSQL with its own connection."""
    if connections[alias].vendor != "postgresql":
        return Database(alias=alias)
    own = _connect(alias, name=name)
    try:
        local = _prepare_session(alias, own, name=name)
    except BaseException:
        own.close()
        raise
    return Database(alias=alias, own=own, local=local)


def close_database(db: Database) -> None:
    """Close what open_database() opened, and Django's connection of this thread.

    Prune uses the latter: if the server has ended it, it would stay broken for as long
    as the worker lives.
    """
    if db.own is not None:
        db.own.close()
    connections[db.alias].close()


def _connect(alias: str, *, name: str) -> psycopg.Connection[Any]:
    import psycopg
    from psycopg.types.string import TextLoader

    # Read at each connect: a password may be a token that expires.
    params = connections[alias].get_connection_params()
    for django_only in ("cursor_factory", "context"):
        params.pop(django_only, None)
    params |= {
        "autocommit": True,
        # Nothing is prepared or set before we know whether the session lasts. Not set
        # with `options`, which poolers refuse.
        "prepare_threshold": None,
        "application_name": f"jobqueue {name}",
        "connect_timeout": params.get("connect_timeout", 10),
        "keepalives": 1,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
    }
    connection: psycopg.Connection[Any] = psycopg.connect(**params)
    # As Django's connections do: the job thread decodes it, not the claim thread.
    connection.adapters.register_loader("jsonb", TextLoader)
    return connection


def _prepare_session(alias: str, own: psycopg.Connection[Any], *, name: str) -> str:
    """Set up a new session; return the SET LOCAL that each transaction needs instead
    if a pooler gives every transaction another session."""
    import psycopg

    role = connections[alias].settings_dict["OPTIONS"].get("assume_role")
    settings = _format_settings(
        own, SESSION_SETTINGS | ({"role": role} if role else {})
    )
    if has_lasting_session(alias, own, lambda: _connect(alias, name=name)):
        own.execute(";".join(f"SET {each}" for each in settings))
        own.prepare_threshold = 0
        return ""
    own.cursor_factory = psycopg.ClientCursor
    own.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return ";".join(f"SET LOCAL {each}" for each in settings)


def _format_settings(
    own: psycopg.Connection[Any], settings: dict[str, str]
) -> list[str]:
    from psycopg import sql

    return [
        sql.SQL("{} = {}").format(sql.SQL(key), sql.Literal(value)).as_string(own)
        for key, value in settings.items()
    ]


def use_immediate_transactions(alias: str) -> None:
    """Make every SQLite transaction of this process take the write lock at its start.

    Without it four processes with 4,000 jobs got "database is locked" 3,979 times.
    """
    connection = connections[alias]
    if connection.vendor == "sqlite":
        connection.settings_dict["OPTIONS"]["transaction_mode"] = "IMMEDIATE"
        connection.settings_dict["OPTIONS"].setdefault("timeout", 30)
        connection.close()
