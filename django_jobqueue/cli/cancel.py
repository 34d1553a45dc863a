"""`jobqueue cancel`: cancel what waits, ask what runs to stop; by id or in bulk."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from ..lifecycle.cancel import cancel_jobs
from ..lifecycle.database import get_database
from ..models import Job
from ..states import LIVE, CancelResult, JobStatus
from .answers import USAGE, Answer, Refusal
from .arguments import add_filters, read_id
from .lookup import find_ids
from .tables import format_count
from .terminal import Terminal

HELP = "Cancel jobs that wait, and ask running ones to stop."
KEYS = """\
cancelled, requested (running, asked to stop), ended (too late): numbers; not_found:
[ids as they were given]"""

# What one look takes; also a line of progress.
BATCH = 500
# Running ones last: a pending job that is claimed meanwhile is met again as running.
_ORDER = (
    JobStatus.SCHEDULED,
    JobStatus.BLOCKED,
    JobStatus.PENDING,
    JobStatus.RUNNING,
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", type=read_id, metavar="ID")
    parser.add_argument("--status", choices=[str(s) for s in _ORDER])
    add_filters(parser, action="Cancel")


def run(flags: dict[str, Any], terminal: Terminal) -> Answer:
    """Cancel the named jobs, or all that match."""
    is_bulk = bool(flags["all"] or flags["queue"] or flags["type"] or flags["status"])
    if is_bulk == bool(flags["ids"]):
        raise Refusal(
            "Name jobs by their ids, or choose them by --queue, --type, --status or "
            "--all: one of the two.",
            code=USAGE,
        )
    if is_bulk:
        return _cancel_matching(flags, terminal)
    ids, not_found = find_ids(flags["ids"])
    return _answer(cancel_jobs(ids), not_found)


def _cancel_matching(flags: dict[str, Any], terminal: Terminal) -> Answer:
    groups = _select_groups(flags)
    number = sum(rows.count() for rows in groups)
    if not number:
        return _answer(Counter(), [], "No job matches.")
    if not flags["yes"]:
        terminal.confirm(f"Cancel {format_count(number)}?")
    results: Counter[CancelResult] = Counter()
    for ids in _read_batches(groups):
        results += cancel_jobs(ids)
        terminal.report(f"{results.total():,} of about {format_count(number)}")
    return _answer(results, [])


def _select_groups(flags: dict[str, Any]) -> list[QuerySet[Job]]:
    """Return the jobs to cancel, status by status: each has its partial index."""
    wanted = {"created_at__lte": get_database().read_clock(None)}
    if flags["queue"]:
        wanted["queue"] = flags["queue"]
    if flags["type"]:
        wanted["job_type"] = flags["type"]
    assert set(_ORDER) == LIVE
    groups = []
    for status in _ORDER:
        if flags["status"] in (None, status):
            rows = Job.objects.filter(status=status, **wanted)
            if status == JobStatus.RUNNING:
                # One that was asked already is not asked again.
                rows = rows.filter(
                    worker_id__isnull=False, cancel_requested_at__isnull=True
                )
            groups.append(rows)
    return groups


def _read_batches(groups: Sequence[QuerySet[Job]]) -> Iterator[list[UUID]]:
    """Yield ids until none is left: each that was handled matches no more."""
    for rows in groups:
        while ids := list(rows.values_list("pk", flat=True)[:BATCH]):
            yield ids


def _answer(
    results: Counter[CancelResult], not_found: list[str], problem: str = ""
) -> Answer:
    document: dict[str, Any] = {str(result): results[result] for result in CancelResult}
    document["not_found"] = not_found
    lines = [
        f"{results[CancelResult.CANCELLED]:,} cancelled",
        f"{results[CancelResult.REQUESTED]:,} running, asked to stop",
        f"{results[CancelResult.ENDED]:,} had ended already or are dead",
    ]
    text = "\n".join(line for line in lines if not line.startswith("0 "))
    problems = [f"There is no job {text}, live or dead." for text in not_found]
    if results[CancelResult.ENDED]:
        problems.append("Not all could be cancelled.")
    return Answer(document=document, text=text, problem=problem or "\n".join(problems))
