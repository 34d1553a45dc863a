"""Documents: a job or an attempt as --json prints it.

The keys are stable. Live and dead jobs have the same keys; a key that only the other
kind has is null. The status of a dead job is `dead`.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from ..models import Attempt, DeadJob, Job
from ..states import DEAD

BRIEF = (
    "id",
    "job_type",
    "queue",
    "status",
    "priority",
    "attempts",
    "max_attempts",
    "unique_key",
    "worker_id",
    "created_at",
    "run_at",
    "claimed_at",
    "started_at",
    "finished_at",
    "died_at",
    "reason",
    "fingerprint",
    "error",
)
FULL = (
    *BRIEF,
    "payload",
    "args",
    "result",
    "progress",
    "tags",
    "meta",
    "crashes",
    "lost",
    "given_back",
    "lease_token",
    "finished_by",
    "timeout",
    "backoff",
    "expires_at",
    "cancel_requested_at",
    "prune_at",
)
ATTEMPT = (
    "number",
    "lease_token",
    "outcome",
    "worker_id",
    "started_at",
    "finished_at",
    "exception_class",
    "message",
    "traceback",
)


def describe_job(job: Job | DeadJob, keys: tuple[str, ...] = BRIEF) -> dict[str, Any]:
    """Return the values of a live or dead job for these keys."""
    return _describe(job, keys) | {"status": get_status(job)}


def describe_attempt(attempt: Attempt) -> dict[str, Any]:
    return _describe(attempt, ATTEMPT)


def get_status(job: Job | DeadJob) -> str:
    return DEAD if isinstance(job, DeadJob) else str(job.status)


def find_columns(model: type[Job] | type[DeadJob]) -> list[str]:
    """Return the brief keys that are columns of this model."""
    names = {column.attname for column in model._meta.concrete_fields}
    return [key for key in BRIEF if key in names]


def _describe(row: Model, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: getattr(row, key, None) for key in keys}
