"""`jobqueue show ID`: one job, live or dead, with its payload and its attempts."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from ..models import Attempt, DeadJob, Job, WorkerHeartbeat
from ..options import get_options
from ..states import JobStatus
from ..storage.database import get_database
from .answers import Answer, Refusal
from .arguments import read_id
from .documents import FULL, describe_attempt, describe_job, get_status
from .lookup import find_id, get_job
from .tables import (
    clean,
    clean_lines,
    format_age,
    format_fields,
    format_json,
    format_moment,
    indent,
)
from .terminal import Terminal

HELP = "Show one job, live or dead, with its payload and its attempts."
KEYS = """\
the keys of `list`, and payload, args, result, progress, tags, meta, crashes, lost,
given_back, lease_token, finished_by, timeout, backoff, expires_at,
cancel_requested_at, prune_at; attempts_made: [{number, lease_token, outcome,
worker_id, started_at, finished_at, exception_class, message, traceback}]"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "id", type=read_id, help="Its id, or at least the first 8 hex digits."
    )


def run(flags: dict[str, Any], terminal: Terminal) -> Answer:
    """Show the live or dead job."""
    prefix = flags["id"]
    id = find_id(prefix)
    job = None if id is None else get_job(id)
    if job is None:
        raise Refusal(f"There is no job {prefix.text}, live or dead.")
    rows = Attempt.objects.filter(job_id=job.pk).order_by("lease_token")
    attempts = list(rows)
    document = describe_job(job, FULL)
    document["attempts_made"] = list(map(describe_attempt, attempts))
    return Answer(document=document, text=_format(job, attempts, terminal.style))


def _format(job: Job | DeadJob, attempts: list[Attempt], style: Any) -> str:
    parts = [format_fields(_list_fields(job))]
    if hint := _describe_missing_worker(job):
        parts.append(style.WARNING(hint))
    for name in ("payload", "args", "result", "progress", "meta"):
        value = getattr(job, name, None)
        if value not in (None, {}, []) or name == "payload":
            heading = style.MIGRATE_HEADING(name.capitalize())
            parts.append(f"{heading}\n{indent(format_json(value))}")
    parts += [_format_attempt(attempt, style) for attempt in attempts]
    return "\n\n".join(parts)


def _describe_missing_worker(job: Job | DeadJob) -> str:
    """Return what to do if no live worker can run a pending job, else ""."""
    if isinstance(job, DeadJob) or job.status != JobStatus.PENDING:
        return ""
    since = get_database().read_clock(None) - get_options().heartbeat_ttl
    alive = WorkerHeartbeat.objects.filter(last_seen_at__gte=since)
    if any(worker.serves(job.queue) for worker in alive):
        return ""
    return (
        f"No live worker serves the queue {clean(job.queue)}. Start one with: "
        f"manage.py runworker"
    )


def _list_fields(job: Job | DeadJob) -> list[tuple[str, Any]]:
    status = get_status(job)
    if isinstance(job, DeadJob):
        status = f"{status} ({job.reason})"
    elif job.cancel_requested_at and job.worker_id:
        status = f"{status}, asked to stop"
    times = ("created", "run", "claimed", "started", "finished", "died", "prune")
    return [
        ("id", job.pk),
        ("type", job.job_type),
        ("queue", job.queue),
        ("status", status),
        ("error", job.error or None),
        ("fingerprint", getattr(job, "fingerprint", None) or None),
        ("priority", str(job.priority)),
        ("attempts", f"{job.attempts} of {job.most_attempts}"),
        ("crashes", job.crashes or None),
        ("lost", job.lost or None),
        ("given back", job.given_back or None),
        ("unique key", job.unique_key),
        ("tags", ", ".join(map(str, job.tags)) or None),
        *((f"{t} at", format_moment(getattr(job, f"{t}_at", None))) for t in times),
        ("expires at", format_moment(job.expires_at)),
        ("worker", getattr(job, "worker_id", None)),
        ("finished by", job.finished_by),
    ]


def _format_attempt(attempt: Attempt, style: Any) -> str:
    heading = f"Attempt {attempt.number}: {attempt.outcome}"
    lines = [style.MIGRATE_HEADING(heading)]
    took = None
    if attempt.started_at is not None:
        took = format_age(attempt.finished_at - attempt.started_at)
    facts = [("at", format_moment(attempt.finished_at)), ("took", took)]
    lines.append(indent(format_fields([*facts, ("worker", attempt.worker_id)])))
    if attempt.message and not attempt.traceback:
        lines.append(indent(clean(attempt.message)))
    if attempt.traceback:
        lines.append(indent(clean_lines(attempt.traceback.rstrip())))
    return "\n".join(lines)
