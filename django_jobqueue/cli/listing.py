"""`jobqueue list`: jobs by status, queue, type or key, in the order of an index."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from ..models import DeadJob, Job
from ..options import get_options
from ..states import DEAD, ENDED, JobStatus
from ..storage.database import get_database
from .answers import USAGE, Answer, Refusal
from .arguments import read_count
from .documents import describe_job, find_columns, get_status
from .tables import format_age, format_table, shorten
from .terminal import Terminal

HELP = "List jobs, or dead jobs."
KEYS = """\
jobs: [{id, job_type, queue, status, priority, attempts, max_attempts, unique_key,
worker_id, created_at, run_at, claimed_at, started_at, finished_at, died_at, reason,
fingerprint, error}]; has_more: whether --limit cut the list"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--status", choices=[*JobStatus.values, DEAD])
    parser.add_argument("--queue", metavar="NAME")
    parser.add_argument("--type", metavar="NAME", help="The job type.")
    parser.add_argument("--key", metavar="KEY", help="The unique key.")
    parser.add_argument(
        "--dead", action="store_true", help="The same as --status dead."
    )
    parser.add_argument(
        "--limit",
        type=read_count(1, 10_000),
        default=50,
        metavar="N",
        help="The most jobs to show (default 50).",
    )


def run(flags: dict[str, Any], terminal: Terminal) -> Answer:
    """List the first jobs that match."""
    status = _read_status(flags)
    names = {"queue": "queue", "type": "job_type", "key": "unique_key"}
    wanted = {names[flag]: flags[flag] for flag in names if flags[flag] is not None}
    limit = flags["limit"]
    rows = _select_dead() if status == DEAD else _select_live(status)
    found = list(rows.filter(**wanted)[: limit + 1])
    jobs = found[:limit]
    document = {"jobs": list(map(describe_job, jobs)), "has_more": len(found) > limit}
    if not jobs:
        return Answer(document=document, text="No job matches.")
    show = _format_dead if status == DEAD else _format
    text = show(jobs, get_database().read_clock(None), terminal.style)
    if document["has_more"]:
        text += f"\nThere are more than {limit:,}; use --limit to list more."
    return Answer(document=document, text=text)


def _read_status(flags: dict[str, Any]) -> str | None:
    status: str | None = flags["status"]
    if flags["dead"] and status not in (None, DEAD):
        raise Refusal(f"--dead and --status {status}: choose one.", code=USAGE)
    return DEAD if flags["dead"] else status


def _select_dead() -> QuerySet[Any]:
    rows: QuerySet[Any] = DeadJob.objects.only(*find_columns(DeadJob))
    return rows.order_by("-died_at", "-pk")


def _select_live(status: str | None) -> QuerySet[Any]:
    """Return the jobs of a status in the order of its partial index.

    Pending jobs in the order of their claim in each queue, scheduled jobs by due time,
    ended jobs with the last to end first, all others with the last enqueued first.
    """
    rows: QuerySet[Any] = Job.objects.only(*find_columns(Job))
    if status is not None:
        rows = rows.filter(status=status)
    match status:
        case JobStatus.PENDING:
            return rows.order_by("queue", "rank", "pk")
        case JobStatus.SCHEDULED:
            return rows.order_by("run_at", "pk")
        case JobStatus.RUNNING:
            return rows.filter(worker_id__isnull=False).order_by("claimed_at", "pk")
        case JobStatus.SUCCEEDED | JobStatus.CANCELLED if _are_pruned(status):
            return rows.filter(prune_at__isnull=False).order_by("-prune_at", "-pk")
    return rows.order_by("-pk")


def _are_pruned(status: str) -> bool:
    """Return whether ended jobs of a status have `prune_at`, and are in its index."""
    retention = get_options().retention[status]
    return retention.age is not None or retention.keep is not None


def _format(jobs: list[Job | DeadJob], now: datetime, style: Any) -> str:
    headers = ["ID", "STATUS", "QUEUE", "TRIES", "SINCE", "TYPE"]
    rows = [
        [
            job.pk,
            get_status(job),
            job.queue,
            f"{job.attempts}/{job.most_attempts}",
            _format_since(job, now),
            job.job_type,
        ]
        for job in jobs
    ]
    return format_table(headers, rows, right=["TRIES", "SINCE"], style=style)


def _format_dead(jobs: list[DeadJob], now: datetime, style: Any) -> str:
    headers = ["ID", "REASON", "QUEUE", "TRIES", "DIED", "TYPE", "ERROR"]
    rows = [
        [
            job.pk,
            job.reason,
            job.queue,
            f"{job.attempts}/{job.most_attempts}",
            format_age(now - job.died_at),
            job.job_type,
            shorten(job.error),
        ]
        for job in jobs
    ]
    return format_table(headers, rows, right=["TRIES", "DIED"], style=style)


def _format_since(job: Job | DeadJob, now: datetime) -> str:
    """Return how long the job has had its status, or how long until it is due."""
    if isinstance(job, DeadJob):
        return format_age(now - job.died_at)
    if job.status == JobStatus.SCHEDULED and job.run_at > now:
        return f"in {format_age(job.run_at - now)}"
    if job.status == JobStatus.RUNNING:
        return format_age(now - (job.claimed_at or now))
    moment = job.finished_at if job.status in ENDED else job.run_at
    return format_age(now - (moment or now))
