"""Commit signals: sent once the transaction of a transition has committed.

Called by the transitions that run in a caller's transaction: enqueue, cancel, requeue
and prune. Without a receiver nothing is collected.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.db import connections, transaction

from ..signals import job_cancelled, job_enqueued, job_requeued, jobs_pruned

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from django.dispatch import Signal

    from ..models import Job


def report_enqueued(
    alias: str, jobs: Iterable[tuple[UUID, str, str, datetime]]
) -> None:
    """Report new jobs: (id, job type, queue, time to run)."""
    if job_enqueued.receivers:
        names = ("job_id", "job_type", "queue", "run_at")
        events = [dict(zip(names, job, strict=True)) for job in jobs]
        _send_on_commit(job_enqueued, events, alias)


def report_cancelled(
    alias: str, jobs: Iterable[tuple[UUID, str, str, int]], *, reason: str
) -> None:
    """Report jobs cancelled while they waited: (id, job type, queue, attempts)."""
    if job_cancelled.receivers:
        names = ("job_id", "job_type", "queue", "attempt")
        end = {"worker_id": None, "reason": reason}
        events = [dict(zip(names, job, strict=True)) | end for job in jobs]
        _send_on_commit(job_cancelled, events, alias)


def report_requeued(alias: str, jobs: Iterable[Job]) -> None:
    """Report dead jobs that were requeued."""
    if job_requeued.receivers:
        events = [
            {
                "job_id": job.pk,
                "job_type": job.job_type,
                "queue": job.queue,
                "run_at": job.run_at,
            }
            for job in jobs
        ]
        _send_on_commit(job_requeued, events, alias)


def report_pruned(alias: str, job_ids: Iterable[UUID]) -> None:
    """Report one batch of pruned jobs."""
    if jobs_pruned.receivers:
        _send_on_commit(jobs_pruned, [{"job_ids": list(job_ids)}], alias)


def _send_on_commit(signal: Signal, events: list[dict[str, Any]], alias: str) -> None:
    connection = connections[alias]
    # With autocommit off, Django does not know when a commit happens.
    if not connection.in_atomic_block and not connection.get_autocommit():
        return

    def send_all() -> None:
        for event in events:
            signal.send_robust(None, **event)

    # Robust: an error here must not stop other hooks.
    transaction.on_commit(send_all, using=alias, robust=True)
