"""`jobqueue requeue`: make dead jobs pending again, by id or in bulk."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from ..lifecycle.requeue import RequeueCounts
from ..models import DeadJob, Job
from ..states import DeadReason
from .answers import USAGE, Answer, Refusal
from .arguments import add_filters, read_id
from .lookup import find_ids
from .tables import format_count
from .terminal import Terminal

HELP = "Make dead jobs pending again."
KEYS = """\
requeued: number; key_in_use: number that stay dead; stayed: [{id, unique_key, used_by}]
(at most 50); not_found: [ids as they were given that no dead job has]"""

BATCH_SIZE = 500
MAX_SHOWN = 50


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", type=read_id, metavar="ID")
    parser.add_argument(
        "--reason", choices=DeadReason.values, help="Jobs that died of this."
    )
    parser.add_argument(
        "--fingerprint",
        metavar="TEXT",
        help="Jobs of one error, as `errors` prints it.",
    )
    add_filters(parser, action="Requeue")


def run(flags: dict[str, Any], terminal: Terminal) -> Answer:
    """Requeue the dead jobs with these ids, or all that match the filters."""
    wanted = _read_filters(flags)
    if bool(wanted or flags["all"]) == bool(flags["ids"]):
        raise Refusal(
            "Give either the ids of dead jobs, or one of --queue, --type, --reason, "
            "--fingerprint and --all.",
            code=USAGE,
        )
    if flags["ids"]:
        return _requeue_named(flags, terminal)
    rows = DeadJob.objects.filter(**wanted)
    number = rows.count()
    if not number:
        document = _describe(RequeueCounts(), [], [])
        return Answer(document=document, text="", problem="No dead job matches.")
    if not flags["yes"]:
        terminal.confirm(f"Requeue {format_count(number, 'dead job')}?")
    return _requeue(rows, [], terminal)


def _read_filters(flags: dict[str, Any]) -> dict[str, Any]:
    names = {
        "queue": "queue",
        "type": "job_type",
        "reason": "reason",
        "fingerprint": "fingerprint",
    }
    return {names[flag]: flags[flag] for flag in names if flags[flag]}


def _requeue_named(flags: dict[str, Any], terminal: Terminal) -> Answer:
    ids, not_found = find_ids(flags["ids"])
    rows = DeadJob.objects.filter(pk__in=ids)
    dead = set(rows.values_list("pk", flat=True))
    not_found += [str(id) for id in ids if id not in dead]
    return _requeue(rows, not_found, terminal)


def _requeue(
    rows: QuerySet[DeadJob], not_found: list[str], terminal: Terminal
) -> Answer:
    ids = list(rows.values_list("pk", flat=True))
    counts = RequeueCounts()
    for start in range(0, len(ids), BATCH_SIZE):
        batch = ids[start : start + BATCH_SIZE]
        counts += DeadJob.objects.filter(pk__in=batch).requeue()
        terminal.report(f"{start + len(batch):,} of {len(ids):,} dead jobs")
    stayed = _find_stayed(ids) if counts.key_in_use else []
    return Answer(
        document=_describe(counts, stayed, not_found),
        text=_format(counts, stayed),
        problem=_find_problem(counts, not_found),
    )


def _find_stayed(ids: Sequence[UUID]) -> list[dict[str, Any]]:
    """Return the first dead jobs that stayed, with the live job that has the key."""
    stayed: list[DeadJob] = []
    for start in range(0, len(ids), BATCH_SIZE):
        rows = DeadJob.objects.filter(pk__in=ids[start : start + BATCH_SIZE])
        stayed += rows.filter(unique_key__isnull=False).order_by("pk")[:MAX_SHOWN]
        if len(stayed) >= MAX_SHOWN:
            break
    return [
        {
            "id": dead.pk,
            "unique_key": dead.unique_key,
            "used_by": Job.objects.filter(
                job_type=dead.job_type, unique_key=dead.unique_key
            )
            .values_list("pk", flat=True)
            .first(),
        }
        for dead in stayed[:MAX_SHOWN]
    ]


def _describe(
    counts: RequeueCounts, stayed: list[dict[str, Any]], not_found: list[str]
) -> dict[str, Any]:
    return {
        "requeued": counts.requeued,
        "key_in_use": counts.key_in_use,
        "stayed": stayed,
        "not_found": not_found,
    }


def _format(counts: RequeueCounts, stayed: list[dict[str, Any]]) -> str:
    lines = [f"{counts.requeued:,} requeued"]
    if counts.key_in_use:
        lines.append(f"{counts.key_in_use:,} not requeued, the unique key is in use:")
    for dead in stayed:
        lines.append(f"  {dead['id']}  {dead['unique_key']!r} of {dead['used_by']}")
    return "\n".join(lines)


def _find_problem(counts: RequeueCounts, not_found: list[str]) -> str:
    problems = [f"There is no dead job {text}." for text in not_found]
    if counts.key_in_use:
        problems.append("Some dead jobs could not be requeued.")
    return "\n".join(problems)
