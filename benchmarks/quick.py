"""Only the database of our system, for scripts of the decision records.

`python -m tests.postgres -- python docs/design/decisions/measure.py` and similar
scripts call prepare(). `make bench-quick` runs `python -m benchmarks --quick`.
"""

from __future__ import annotations

import os

import psycopg


def prepare() -> str:
    """Recreate the database and its tables; return its address."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    import django
    from django.conf import settings
    from django.core.management import call_command

    name = settings.DATABASES["default"]["NAME"]
    server = os.environ["DATABASE_URL"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}"')
        connection.execute(f'CREATE DATABASE "{name}"')
    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)
    return server.rpartition("/")[0] + f"/{name}"
