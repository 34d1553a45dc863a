"""Our worker against a bare psycopg loop on the same PostgreSQL, as a ratio.

`make bench-quick` runs it. The two take turns, three times, and the middle one counts:
machines are shared and noisy, and only what ran side by side can be compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from typing import Any

import psycopg

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"

READ_RATE = """
    SELECT count(*) / extract(epoch FROM max(finished_at) - min(claimed_at))
    FROM jobqueue_job
    WHERE status = 'succeeded'
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    url = prepare()
    from benchmarks.bare import run_bare_loop

    rates: dict[str, list[float]] = {"bare loop": [], "runworker": []}
    for number in range(1, arguments.rounds + 1):
        rates["bare loop"].append(run_bare_loop(url, count=arguments.jobs))
        rates["runworker"].append(run_worker(url, count=arguments.jobs))
        latest = ", ".join(f"{name} {rate[-1]:,.0f}/s" for name, rate in rates.items())
        print(f"round {number} of {arguments.rounds}: {latest}", flush=True)
    show(rates, count=arguments.jobs)


def prepare() -> str:
    """Make the database and its tables anew; return its address."""
    import django
    from django.conf import settings
    from django.core.management import call_command

    name = settings.DATABASES["default"]["NAME"]
    server = os.environ["DATABASE_URL"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}"')
        connection.execute(f'CREATE DATABASE "{name}"')
    django.setup()
    call_command("migrate", verbosity=0)
    return server.rpartition("/")[0] + f"/{name}"


def run_worker(url: str, *, count: int) -> float:
    """Enqueue no-op jobs, drain them with default settings, return jobs a second."""
    from django.db import connection

    from django_jobqueue import Job, JobSpec

    with psycopg.connect(url, autocommit=True) as session:
        session.execute("TRUNCATE jobqueue_job, jobqueue_attempt")
        Job.objects.enqueue_many(
            JobSpec("benchmarks.nothing", {}) for _ in range(count)
        )
        connection.close()
        session.execute("VACUUM ANALYZE jobqueue_job")
        subprocess.run(
            [sys.executable, "-m", "django", "runworker", "--burst"],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        [[rate]] = session.execute(READ_RATE).fetchall()
    return float(rate)


def show(rates: dict[str, list[float]], *, count: int) -> None:
    medians = {name: statistics.median(rate) for name, rate in rates.items()}
    print(f"\nDrain of {count:,} no-op jobs, one process, history kept (median):")
    for name, rate in rates.items():
        spread: Any = f"{min(rate):,.0f} to {max(rate):,.0f}"
        print(f"  {name:10} {medians[name]:>9,.0f} jobs/s   ({spread})")
    print(f"  ratio      {medians['runworker'] / medians['bare loop']:>9.2f}")


if __name__ == "__main__":
    main()
