"""What processes and the database have used, read from outside of the worker."""

from __future__ import annotations

import os
from pathlib import Path

from django.db import connection


def count_transactions() -> int:
    """Return how many transactions the database has ended. PostgreSQL only."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database"
            " WHERE datname = current_database()"
        )
        return int(cursor.fetchone()[0])


def read_cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
