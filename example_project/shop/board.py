"""The state of the queue for the page, read with a handful of queries."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils import timezone
from django.utils.text import Truncator

from django_jobqueue import DeadJob, Job
from django_jobqueue.models import WorkerHeartbeat
from django_jobqueue.options import get_options

from .models import Photo

RUNNING = 6
LATEST = 14
DEAD = 5
PHOTOS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job, live or dead, as a row of a list."""

    id: UUID
    job_type: str
    queue: str
    status: str
    attempts: int
    created_at: datetime
    text: str
    # None: no progress was reported, or the job is not running.
    fraction: float | None = None
    admin_url: str

    @property
    def can_cancel(self) -> bool:
        return self.status in ("scheduled", "pending", "blocked", "running")

    @property
    def can_requeue(self) -> bool:
        return self.status == "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    status: str
    number: int
    admin_url: str


def read_board(own_ids: Iterable[str]) -> dict[str, Any]:
    """Return the template's context; `own_ids` are the jobs this visitor started."""
    dead = DeadJob.objects.order_by("-died_at")[:DEAD]
    return {
        "counts": _read_counts(),
        "own_rows": _find_rows(own_ids),
        "latest_rows": [_describe_job(job) for job in _read_latest()],
        "dead_rows": [_describe_dead_job(job) for job in dead],
        "workers": _read_workers(),
        "photos": Photo.objects.exclude(thumbnail=b"")
        .order_by("-pk")
        .defer("thumbnail")[:PHOTOS],
    }


def admin_list(model: str) -> str:
    """Return the URL of a list in the admin."""
    return f"{reverse('admin:index')}jobqueue/{model}/"


def _read_counts() -> list[Count]:
    jobs = admin_list("job")
    counts = [
        Count(status=status, number=number, admin_url=f"{jobs}?status={status}")
        for status, number in Job.objects.counts().items()
    ]
    dead = DeadJob.objects.count()
    return [*counts, Count(status="dead", number=dead, admin_url=admin_list("deadjob"))]


def _read_latest() -> list[Job]:
    """Return the running jobs, followed by the newest others."""
    newest = Job.objects.order_by("-id")
    running = list(newest.filter(status="running")[:RUNNING])
    seen = {job.pk for job in running}
    others = [job for job in newest[:LATEST] if job.pk not in seen]
    return [*running, *others][:LATEST]


def _find_rows(ids: Iterable[str]) -> list[Row]:
    ids = [UUID(id) for id in ids]
    if not ids:
        return []
    rows = [_describe_job(job) for job in Job.objects.filter(pk__in=ids)]
    rows += [_describe_dead_job(job) for job in DeadJob.objects.filter(pk__in=ids)]
    return sorted(rows, key=lambda row: row.id, reverse=True)


def _describe_job(job: Job) -> Row:
    progress = job.progress or {}
    is_running = job.status == "running"
    return Row(
        id=job.pk,
        job_type=job.job_type,
        queue=job.queue,
        status=job.status,
        attempts=job.attempts,
        created_at=job.created_at,
        text=_describe_state(job),
        fraction=progress.get("fraction") if is_running else None,
        admin_url=f"{admin_list('job')}{job.pk}/change/",
    )


def _describe_dead_job(dead: DeadJob) -> Row:
    return Row(
        id=dead.pk,
        job_type=dead.job_type,
        queue=dead.queue,
        status="dead",
        attempts=dead.attempts,
        created_at=dead.created_at,
        text=_shorten(f"{dead.reason}: {dead.error}"),
        admin_url=f"{admin_list('deadjob')}{dead.pk}/change/",
    )


def _describe_state(job: Job) -> str:
    match job.status:
        case "succeeded":
            text = json.dumps(job.result, ensure_ascii=False)
        case "running" if job.cancel_requested_at:
            text = "asked to stop"
        case "running":
            text = (job.progress or {}).get("note", "")
        case "scheduled":
            seconds = max(0, round((job.run_at - timezone.now()).total_seconds()))
            text = f"runs in {seconds} s. {job.error}"
        case _:
            text = job.error
    return _shorten(text)


def _shorten(text: str) -> str:
    return Truncator(text).chars(120)


def _read_workers() -> list[dict[str, Any]]:
    silent_before = timezone.now() - get_options().heartbeat_ttl
    return [
        {"worker": worker, "is_silent": worker.last_seen_at < silent_before}
        for worker in WorkerHeartbeat.objects.order_by("started_at")
    ]
