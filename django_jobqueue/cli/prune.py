"""`jobqueue prune`: delete ended jobs now; workers do the same once a minute."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.db.models import Count

from ..lifecycle.prune import (
    find_due_jobs,
    find_older_jobs,
    prune_in_batches,
    prune_older,
)
from ..states import ENDED
from ..storage.database import get_database
from .answers import Answer
from .arguments import read_count, read_duration
from .tables import format_count
from .terminal import Terminal

HELP = "Delete ended jobs whose retention is over. Dead jobs are never deleted."
KEYS = "is_dry_run; succeeded, cancelled: numbers; total"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="Count the jobs, delete nothing."
    )
    parser.add_argument(
        "--limit",
        type=read_count(1, 10**12),
        metavar="N",
        help="The most jobs to delete.",
    )
    parser.add_argument(
        "--older-than",
        type=read_duration,
        metavar="TIME",
        help="Jobs that ended longer ago (12h, 30d), instead of by RETENTION.",
    )


def run(flags: dict[str, Any], terminal: Terminal) -> Answer:
    """Delete in bounded batches, each in its own transaction."""
    if flags["dry_run"]:
        counts = _count(flags)
    else:
        counts = Counter()
        for number, batch in enumerate(_prune(flags), 1):
            counts += batch
            terminal.report(f"batch {number:,}: {format_count(counts.total())} pruned")
    document: dict[str, Any] = {"is_dry_run": flags["dry_run"]}
    document |= {status: counts[status] for status in _list_statuses()}
    document["total"] = counts.total()
    kinds = ", ".join(f"{counts[status]:,} {status}" for status in _list_statuses())
    verb = "would be pruned" if flags["dry_run"] else "pruned"
    text = f"{format_count(counts.total())} {verb}: {kinds}"
    return Answer(document=document, text=text)


def _prune(flags: dict[str, Any]) -> Iterator[Counter[str]]:
    db = get_database()
    if flags["older_than"] is None:
        return prune_in_batches(db, limit=flags["limit"])
    before = db.read_clock(None) - flags["older_than"]
    return prune_older(db, before=before, limit=flags["limit"])


def _count(flags: dict[str, Any]) -> Counter[str]:
    """Count the jobs that would be deleted, in the same order and up to the limit."""
    db = get_database()
    if flags["older_than"] is None:
        due = find_due_jobs(db)
        found = {status: rows.count() for status, rows in due.items()}
    else:
        before = db.read_clock(None) - flags["older_than"]
        older = find_older_jobs(db, before=before).order_by()
        found = dict(older.values_list("status").annotate(Count("pk")))
    left = flags["limit"] or sum(found.values())
    counts: Counter[str] = Counter()
    for status in sorted(found):
        counts[status] = min(left, found[status])
        left -= counts[status]
    return counts


def _list_statuses() -> list[str]:
    return [str(status) for status in sorted(ENDED, reverse=True)]
