"""`jobqueue cancel`: cancel waiting jobs, ask running ones to stop."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from ..lifecycle.cancel import cancel_jobs
from ..models import Job
from ..states import LIVE, CancelResult, JobStatus
from ..storage.database import get_database
from .answers import USAGE, Answer, Refusal
from .arguments import add_filters, read_id
from .lookup import find_ids
from .tables import format_count
from .terminal import Terminal

HELP = "Cancel waiting jobs, and ask running ones to stop."
KEYS = """\
cancelled, requested (running, asked to stop), ended (too late): numbers; not_found:
[ids as they were given]"""

# Jobs per query and per line of progress.
BATCH_SIZE = 500
# Running jobs last: a pending job that is claimed meanwhile is found again as running.
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
    """Cancel the jobs with these ids, or all that match the filters."""
    is_bulk = bool(flags["all"] or flags["queue"] or flags["type"] or flags["status"])
    if is_bulk == bool(flags["ids"]):
        raise Refusal(
            "Give either the ids of jobs, or one of --queue, --type, --status and "
            "--all.",
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
    """Return the jobs to cancel by status: each status has a partial index."""
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
                # Skip jobs that were asked to stop before.
                rows = rows.filter(
                    worker_id__isnull=False, cancel_requested_at__isnull=True
                )
            groups.append(rows)
    return groups


def _read_batches(groups: Sequence[QuerySet[Job]]) -> Iterator[list[UUID]]:
    """Yield ids until none is left: a cancelled job no longer matches."""
    for rows in groups:
        while ids := list(rows.values_list("pk", flat=True)[:BATCH_SIZE]):
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
        problems.append("Some jobs could not be cancelled.")
    return Answer(document=document, text=text, problem=problem or "\n".join(problems))
