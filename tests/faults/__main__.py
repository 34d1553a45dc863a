"""Inject faults into real workers, and count lost, doubled and miscounted jobs.

    python -m tests.faults [--minutes 55] [--seed N] [--only kill]

`make faults` calls it. It creates test databases on the PostgreSQL server of
DATABASE_URL, else on a temporary server. Exits with 1 if anything was lost, done twice
or miscounted.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys

import django

from tests.postgres import database_url


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--minutes", type=float, default=55.0, help="default: 55")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--only", default="", help="faults with this in their names")
    options = parser.parse_args()
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "JOBQUEUE_TEST_DATABASE": "postgresql",
        "JOBQUEUE_TEST_RUN": secrets.token_hex(4),
    }
    print(f"seed {options.seed}", flush=True)
    with database_url() as url:
        os.environ["DATABASE_URL"] = url
        django.setup()
        return run(options)


def run(options: argparse.Namespace) -> int:
    """Create the databases, inject faults, and drop the databases."""
    from django.test.utils import setup_databases, teardown_databases

    from .runner import run_faults

    made = setup_databases(verbosity=0, interactive=False)
    try:
        return run_faults(minutes=options.minutes, seed=options.seed, only=options.only)
    finally:
        teardown_databases(made, verbosity=0)


if __name__ == "__main__":
    sys.exit(main())
