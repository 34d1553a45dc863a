"""`jobqueue errors`: dead jobs grouped by the fingerprint of their error."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Min, QuerySet

from ..models import DeadJob
from ..storage.database import get_database
from .answers import Answer
from .arguments import read_count
from .tables import format_age, format_table, shorten
from .terminal import Terminal

HELP = "Group dead jobs by their error, the most frequent first."
KEYS = """\
errors: [{fingerprint ("" if the job has none), number, job_types: number of different
job types, job_type, reason, error, id: of the last to die, first_died_at,
last_died_at}]; has_more: whether --limit cut the list"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--queue", metavar="NAME")
    parser.add_argument("--type", metavar="NAME", help="The job type.")
    parser.add_argument(
        "--limit",
        type=read_count(1, 1_000),
        default=20,
        metavar="N",
        help="The most errors to show (default 20).",
    )


def run(flags: dict[str, Any], terminal: Terminal) -> Answer:
    """Group the dead jobs that match."""
    names = {"queue": "queue", "type": "job_type"}
    wanted = {names[flag]: flags[flag] for flag in names if flags[flag] is not None}
    rows = DeadJob.objects.filter(**wanted)
    limit = flags["limit"]
    found = list(_group(rows)[: limit + 1])
    errors = [_describe(rows, group) for group in found[:limit]]
    document = {"errors": errors, "has_more": len(found) > limit}
    if not errors:
        return Answer(document=document, text="No dead job matches.")
    text = _format(errors, get_database().read_clock(None), terminal.style)
    if document["has_more"]:
        text += f"\nThere are more than {limit:,}; use --limit to list more."
    return Answer(document=document, text=text)


def _group(rows: QuerySet[DeadJob]) -> QuerySet[Any, Any]:
    groups = rows.order_by().values("fingerprint")
    return groups.annotate(
        number=Count("pk"),
        job_types=Count("job_type", distinct=True),
        first_died_at=Min("died_at"),
        last_died_at=Max("died_at"),
    ).order_by("-number", "-last_died_at", "fingerprint")


def _describe(rows: QuerySet[DeadJob], group: dict[str, Any]) -> dict[str, Any]:
    """Add the last job to die of this error: its text may differ from the others."""
    same = rows.filter(fingerprint=group["fingerprint"])
    keys = ("job_type", "reason", "error", "id")
    last = same.order_by("-died_at", "-pk").values(*keys).first()
    # The last one may be requeued between the two queries.
    return group | (last or dict.fromkeys(keys))


def _format(errors: list[dict[str, Any]], now: datetime, style: Any) -> str:
    headers = ["JOBS", "LAST", "FIRST", "FINGERPRINT", "REASON", "TYPE", "ERROR"]
    rows = [
        [
            error["number"],
            format_age(now - error["last_died_at"]),
            format_age(now - error["first_died_at"]),
            error["fingerprint"],
            error["reason"],
            _format_types(error),
            shorten(error["error"] or ""),
        ]
        for error in errors
    ]
    right = ["JOBS", "LAST", "FIRST"]
    table = format_table(headers, rows, right=right, style=style)
    return f"{table}\nRequeue all jobs of one error: jobqueue requeue --fingerprint …"


def _format_types(error: dict[str, Any]) -> str | None:
    more = error["job_types"] - 1
    return f"{error['job_type']} and {more} more" if more else error["job_type"]
