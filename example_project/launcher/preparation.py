"""Prepare what web and worker need. Each step raises NotPrepared."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DatabaseError, connections

PROJECT = Path(__file__).resolve().parent.parent
PORTS = 100


class NotPrepared(Exception):
    """A step failed; the message is one line that says what to do."""


def prepare_databases() -> None:
    """Create the second database if it is missing, and migrate both."""
    _check("default")
    _create_business_database()
    _check("business")
    for alias in ("default", "business"):
        call_command("migrate", database=alias, verbosity=0, interactive=False)


def reset_password() -> str:
    """Set and return a new password of the superuser `admin`."""
    password = secrets.token_urlsafe(9)
    admin, _created = get_user_model().objects.get_or_create(username="admin")
    admin.is_staff = admin.is_superuser = admin.is_active = True
    admin.set_password(password)
    admin.save()
    return password


def find_port(first: int) -> int:
    """Return the first free port of 127.0.0.1, starting at `first`."""
    last = min(first + PORTS, 65536) - 1
    for port in range(first, last + 1):
        # Some systems allow to bind 127.0.0.1 while another process listens on 0.0.0.0.
        if not is_listening(port) and _can_bind(port):
            return port
    raise NotPrepared(
        f"No port from {first} to {last} is free on 127.0.0.1. "
        f"Choose another: make demo ARGS='--port 9000'"
    )


def is_listening(port: int) -> bool:
    """Return whether a server answers on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def one_line(error: Exception) -> str:
    """Return the message of an error without line breaks."""
    return " ".join(str(error).split())[:300]


def _check(alias: str) -> None:
    database = connections[alias].settings_dict
    try:
        connections[alias].ensure_connection()
    except DatabaseError as error:
        raise NotPrepared(
            f"The database {str(database['NAME'])!r} cannot be reached: "
            f"{one_line(error)}"
        ) from error


def _create_business_database() -> None:
    first, second = connections["default"], connections["business"]
    if first.vendor != "postgresql" or _server(first) != _server(second):
        return
    name = second.settings_dict["NAME"]
    with first.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name])
        if cursor.fetchone():
            return
        try:
            cursor.execute(f"CREATE DATABASE {first.ops.quote_name(name)}")
        except DatabaseError as error:
            reason = one_line(error)
        else:
            print(f"Created the database {name} for the books.", flush=True)
            return
    _restart_with_sqlite(f"The database {name} could not be created ({reason})")


def _server(connection: Any) -> tuple[str, str, str]:
    database = connection.settings_dict
    return database["ENGINE"], database["HOST"], str(database["PORT"])


def _restart_with_sqlite(reason: str) -> None:
    """Restart the demo with a file as the second database."""
    path = PROJECT / "business.sqlite3"
    print(
        f"{reason}. The books go to {path.name} instead; "
        f"BUSINESS_DATABASE_URL=postgres://… sets another database.",
        flush=True,
    )
    os.environ["BUSINESS_DATABASE_URL"] = f"sqlite:///{quote(str(path))}"
    # Settings are read once per process, so start a new one.
    os.execv(sys.executable, [sys.executable, *sys.argv])


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        # Like the web server: a port closed a moment ago counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
