"""The example shop: its checks, its tests, and every button with a real worker.

It has its own settings, so each test runs it in a separate process: always on SQLite,
and on PostgreSQL if this run uses it.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings

from tests.conftest import DATABASE
from tests.processes import ROOT

EXAMPLE = ROOT / "example_project"
DATABASES = ["sqlite", *(["postgresql"] if DATABASE == "postgresql" else [])]

# Prepare everything as the demo does, start every action (the long ones shortened), run
# a worker until all have ended, and print the results.
PRESS_EVERY_BUTTON = """
import json, django
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db.models import Sum
from django_jobqueue import DeadJob, Job
from launcher.preparation import prepare_databases, reset_password
from shop import jobs
from shop.actions import ACTIONS
from shop.models import LedgerEntry, Order, Payment, Photo, Product

prepare_databases()
passwords = {reset_password(), reset_password()}
for name, action in ACTIONS.items():
    if name not in ("report", "stock"):
        action.start()
jobs.build_report.enqueue(days=2)
jobs.count_stock.enqueue(shelves=2)
for job in Job.objects.filter(status="scheduled"):
    job.run_now()
call_command("runworker", burst=True)
print(json.dumps({
    "live": dict(Job.objects.values_list("job_type", "status")),
    "dead": dict(DeadJob.objects.values_list("job_type", "reason")),
    "ledger": LedgerEntry.objects.using("business").count(),
    "booked": Order.objects.filter(is_booked=True).count(),
    "paid": Payment.objects.count(),
    "packed": Order.objects.get(status="packed").quantity,
    "sold": Product.objects.aggregate(all=Sum("sold"))["all"],
    "passwords": len(passwords),
    "admins": User.objects.filter(is_staff=True, is_superuser=True).count(),
    "thumbnails": Photo.objects.exclude(thumbnail=b"").count(),
}))
"""


@contextmanager
def example_env(database: str, directory: Path) -> Iterator[dict[str, str]]:
    """Yield the environment in which the example has its own databases."""
    env = {name: value for name, value in os.environ.items() if name not in _OURS}
    path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    env["PYTHONWARNINGS"] = "error"
    # The demo keeps its logs there.
    env["TMPDIR"] = str(directory)
    env["DJANGO_SETTINGS_MODULE"] = "config.settings"
    if database == "sqlite":
        yield env | {"DATABASE_URL": f"sqlite:///{directory / 'db.sqlite3'}"}
    else:
        with _postgres_database() as url:
            yield env | {"DATABASE_URL": url}


_OURS = {"DATABASE_URL", "BUSINESS_DATABASE_URL", "DEBUG", "SECRET_KEY"}


@contextmanager
def _postgres_database() -> Iterator[str]:
    import psycopg

    name = f"test_example_{secrets.token_hex(4)}"
    server = settings.DATABASES["default"]
    with psycopg.connect(
        host=server["HOST"],
        port=server["PORT"],
        user=server["USER"],
        password=server["PASSWORD"],
        dbname="postgres",
        autocommit=True,
    ) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        try:
            yield (
                urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
            )
        finally:
            for each in (name, f"{name}_business"):
                connection.execute(f'DROP DATABASE IF EXISTS "{each}" WITH (FORCE)')


def run_example(env: dict[str, str], *arguments: str) -> str:
    """Run Python in the example's folder; return its output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=EXAMPLE,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_example_passes_djangos_checks(tmp_path: Path) -> None:
    with example_env("sqlite", tmp_path) as env:
        run_example(env, "manage.py", "check", "--fail-level", "WARNING")


def test_example_has_all_migrations(tmp_path: Path) -> None:
    with example_env("sqlite", tmp_path) as env:
        run_example(env, "manage.py", "makemigrations", "--check", "shop")


@pytest.mark.slow
@pytest.mark.parametrize("database", DATABASES)
def test_example_passes_its_own_tests(database: str, tmp_path: Path) -> None:
    with example_env(database, tmp_path) as env:
        # Both TestCase classes and pytest functions; -W as in `filterwarnings`.
        options = ["-q", "-W", "error", "-p", "no:cacheprovider"]
        run_example(env, "-m", "pytest", *options)


@pytest.mark.parametrize("database", DATABASES)
def test_every_button_starts_a_job_that_ends_as_the_page_says(
    database: str, tmp_path: Path
) -> None:
    with example_env(database, tmp_path) as env:
        env["PAYMENT_FAILURE_RATE"] = "0"
        printed = run_example(env, "-c", PRESS_EVERY_BUTTON)
    found = json.loads(printed.splitlines()[-1])
    assert found["dead"] == {"shop.import_feed": "discarded"}
    assert set(found["live"].values()) == {"succeeded"}
    assert len(found["live"]) == 12
    assert found["ledger"] == found["booked"] == 1
    assert found["paid"] == found["thumbnails"] == 1
    assert found["sold"] == found["packed"]
    assert (found["passwords"], found["admins"]) == (2, 1)
