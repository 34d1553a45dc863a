"""Errors of a database as Django raises them."""

from __future__ import annotations

import psycopg
from django.db import OperationalError

LOST = psycopg.OperationalError("server closed the connection unexpectedly")


def from_driver(error: BaseException) -> OperationalError:
    """Return the error as Django's cursors raise it."""
    wrapped = OperationalError(str(error))
    wrapped.__cause__ = error
    return wrapped
