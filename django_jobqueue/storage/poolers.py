"""Poolers: whether a session lasts between two transactions of a connection.

Asked by worker/running/connections.py at each connect. A pooler in transaction mode,
such as PgBouncer's, gives each transaction any free server session: settings, prepared
statements and LISTEN are then lost, or affect another client. This mode is assumed
unless a test shows the opposite.
"""

from __future__ import annotations

import secrets
import select
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections

if TYPE_CHECKING:
    import psycopg

# How long the second connection, and the notification, may take.
REPLY_SECONDS = 2.0
# How often the sessions of the two connections are compared.
ROUNDS = 3
# How long transaction mode is remembered: a process opens its connections together.
REMEMBER_SECONDS = 5.0

READ_SESSION = """
    SELECT pg_backend_pid()
"""
LISTEN = """
    LISTEN "{channel}"
"""
UNLISTEN = """
    UNLISTEN "{channel}"
"""
NOTIFY_CHANNEL = """
    SELECT pg_notify('{channel}', '')
"""


class _Answer(NamedTuple):
    given_at: float
    is_lasting: bool
    # The client got another process id than the server's.
    has_false_pid: bool


_answers: dict[str, _Answer] = {}
_lock = threading.Lock()


def has_lasting_session(
    alias: str,
    own: psycopg.Connection[Any],
    connect: Callable[[], psycopg.Connection[Any]],
) -> bool:
    """Tell whether what this new connection sets and prepares stays with it.

    `own` is in autocommit and prepares nothing yet. `connect` opens a second connection
    of the same kind, which is closed again.

    A pooler gives each client an invented process id, which clients use in requests to
    cancel a query. Another sign is DISABLE_SERVER_SIDE_CURSORS, which Django requires
    behind a pooler in transaction mode.
    """
    [[pid]] = own.execute(READ_SESSION).fetchall()
    has_false_pid = bool(pid != own.info.backend_pid)
    is_configured = connections[alias].settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
    with _lock:
        if not has_false_pid and not is_configured:
            _answers.pop(alias, None)
            return True
        known = _answers.get(alias)
        # A session is shown to last for each connection: settings that a pooler, just
        # restarted in the other mode, gave to others would stay with them.
        is_old = known is None or time.monotonic() - known.given_at > REMEMBER_SECONDS
        if known is None or known.is_lasting or is_old:
            with closing(connect()) as other:
                is_lasting = _try_out(own, other)
            known = _Answer(time.monotonic(), is_lasting, has_false_pid)
            _answers[alias] = known
    return known.is_lasting


def has_false_pids(alias: str) -> bool:
    """Tell whether the process ids that clients know are those of a pooler, which mean
    nothing to the server."""
    return alias in _answers and _answers[alias].has_false_pid


def _try_out(own: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> bool:
    """Test whether a notification reaches `own` while it is idle.

    Only a connection that keeps its session receives it. No notification means
    transaction mode. The sessions are compared first, because in transaction mode a
    LISTEN would stay with a session of the pool: two connections that get the same
    session share it.
    """
    [[pid]] = own.execute(READ_SESSION).fetchall()
    for _ in range(ROUNDS):
        if _ask(other, READ_SESSION) in (None, pid):
            return False
        [[again]] = own.execute(READ_SESSION).fetchall()
        if again != pid:
            return False
    channel = f"jobqueue_{secrets.token_hex(8)}"
    own.execute(LISTEN.format(channel=channel).encode())
    _ask(other, NOTIFY_CHANNEL.format(channel=channel))
    has_arrived = any(own.notifies(timeout=REPLY_SECONDS, stop_after=1))
    own.execute(UNLISTEN.format(channel=channel).encode())
    return has_arrived


def _ask(connection: psycopg.Connection[Any], statement: str) -> int | None:
    """Return the number a statement gives (0 for a text); None if it takes too long: a
    pool may have no session left."""
    raw = connection.pgconn
    raw.send_query(statement.encode())
    deadline = time.monotonic() + REPLY_SECONDS
    poller = select.poll()
    poller.register(raw.socket, select.POLLIN)
    while raw.is_busy():
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            return None
        raw.consume_input()
    found = None
    while (result := raw.get_result()) is not None:
        if result.ntuples:
            found = int(result.get_value(0, 0) or 0)
    return found
