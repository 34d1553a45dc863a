"""Checks of the jobs' database and of the database routers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections, router

from ..options import read_options

_WAL = re.compile(r"journal_mode\s*=\s*['\"]?wal\b", re.IGNORECASE)


@register("jobqueue")
def check_pool(**kwargs: Any) -> list[CheckMessage]:
    """W004: Django's pool has fewer connections than a worker runs jobs at a time."""
    options, _ = read_options({})
    if options.database not in settings.DATABASES:
        return []
    # Imported here: web processes import the checks and need no worker.
    from ..worker.running.connections import find_pool_size

    size = find_pool_size(options.database)
    if size is None or size >= options.concurrency:
        return []
    return [
        Warning(
            f"The pool of the database {options.database!r} has {size} connections, "
            f"and a worker runs {options.concurrency} jobs at a time.",
            hint=(
                f"runworker will lower its concurrency to {size}. Raise "
                f"OPTIONS['pool']['max_size'], or lower JOBQUEUE['CONCURRENCY']."
            ),
            id="jobqueue.W004",
        )
    ]


@register("jobqueue", Tags.database)
def check_database(
    *, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """E005: no SKIP LOCKED. Only with `databases`: it may need a connection."""
    alias = read_options({})[0].database
    if alias not in (databases or ()) or alias not in settings.DATABASES:
        return []
    connection = connections[alias]
    # SQLite has one writer at a time and needs no SKIP LOCKED.
    if connection.vendor == "sqlite":
        return []
    if connection.features.has_select_for_update_skip_locked:
        return []
    return [
        Error(
            f"The database {alias!r} ({connection.display_name}) has no SELECT … FOR "
            f"UPDATE SKIP LOCKED: workers would wait for each other, or take a job "
            f"twice.",
            hint=(
                "Keep the jobs in PostgreSQL 15 or newer, or in SQLite: "
                "JOBQUEUE['DATABASE'] names the alias."
            ),
            id="jobqueue.E005",
        )
    ]


@register("jobqueue", deploy=True)
def check_journal(**kwargs: Any) -> list[CheckMessage]:
    """W006: SQLite without its write-ahead log, in production."""
    alias = read_options({})[0].database
    if alias not in settings.DATABASES or connections[alias].vendor != "sqlite":
        return []
    if _has_write_ahead_log(connections[alias].settings_dict):
        return []
    return [
        Warning(
            f"The SQLite database {alias!r} has no write-ahead log: a reader blocks "
            f"the workers' writes, and a writer blocks all readers.",
            hint=(
                "Add 'init_command': 'PRAGMA journal_mode=WAL' to its OPTIONS, or use "
                "PostgreSQL."
            ),
            id="jobqueue.W006",
        )
    ]


def _has_write_ahead_log(database: dict[str, Any]) -> bool:
    if _WAL.search(database["OPTIONS"].get("init_command") or ""):
        return True
    name = str(database["NAME"])
    if ":memory:" in name or "mode=memory" in name:
        # Other processes cannot open it.
        return True
    try:
        with Path(name).open("rb") as file:
            # SQLite's file format: 2 and 2 are the write-ahead log, which stays on.
            return file.read(20)[18:20] == b"\x02\x02"
    except OSError:
        return False


@register("jobqueue")
def check_routers(**kwargs: Any) -> list[CheckMessage]:
    """E007: a router keeps our tables out; W008: it sends writes elsewhere."""
    alias = read_options({})[0].database
    if alias not in settings.DATABASES:
        return []
    models = list(apps.get_app_config("jobqueue").get_models())
    found: list[CheckMessage] = []
    missing = [m.__name__ for m in models if not router.allow_migrate_model(alias, m)]
    if missing:
        found.append(
            Error(
                f"DATABASE_ROUTERS keep tables of django_jobqueue out of the database "
                f"{alias!r}: {', '.join(missing)}.",
                hint=(
                    f"Let allow_migrate({alias!r}, 'jobqueue') return True or None: "
                    f"all tables must be where JOBQUEUE['DATABASE'] says."
                ),
                id="jobqueue.E007",
            )
        )
    for each in router.routers:
        elsewhere = {
            model.__name__: answer
            for model in models
            if (answer := _ask(each, model)) not in (None, alias)
        }
        if elsewhere:
            found.append(_warn_of_router(each, alias, elsewhere))
    return found


def _ask(each: Any, model: Any) -> str | None:
    """Return the alias a router chooses for writes of a model; None: no opinion."""
    if not hasattr(each, "db_for_write"):
        return None
    answer: str | None = each.db_for_write(model)
    return answer


def _warn_of_router(each: Any, alias: str, elsewhere: dict[str, str]) -> CheckMessage:
    names = ", ".join(f"{name} to {answer!r}" for name, answer in elsewhere.items())
    return Warning(
        f"The router {type(each).__name__} sends writes elsewhere than "
        f"JOBQUEUE['DATABASE'], which is {alias!r}: {names}.",
        hint=(
            f"django_jobqueue uses {alias!r} whatever routers say; other code would "
            f"look in the wrong place. Let db_for_read and db_for_write return "
            f"{alias!r} or None for the app label 'jobqueue'."
        ),
        id="jobqueue.W008",
    )
