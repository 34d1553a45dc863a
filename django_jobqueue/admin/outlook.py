"""What happens next to a job: a sentence for its page, a few words for the list."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.translation import gettext as _

from ..models import DeadJob, Job, WorkerHeartbeat
from ..models.record import JobRecord
from ..options import get_options
from ..states import ENDED, JobStatus
from .display import EMPTY, describe_age, describe_duration


def describe_next(job: Job) -> str:
    """Return what happens next; asks for the workers that could do it."""
    match job.status:
        case JobStatus.SCHEDULED:
            return _describe_scheduled(job)
        case JobStatus.PENDING:
            return _describe_pending(job)
        case JobStatus.RUNNING:
            return _describe_running(job)
        case JobStatus.BLOCKED:
            return _("Waits until what it depends on lets it go.")
        case _:
            return _describe_ended(job)


def describe_dead(dead_job: DeadJob) -> str:
    """Return why it lies in the dead letters, and for how long."""
    return _(
        "In the dead letters: %(reason)s. Stays there until someone requeues or "
        "deletes it."
    ) % {"reason": dead_job.get_reason_display()}


def describe_shortly(job: Job) -> str:
    """Return how long the job waits, runs or took; asks for nothing."""
    now = timezone.now()
    match job.status:
        case JobStatus.SCHEDULED if job.run_at > now:
            return describe_age(job.run_at)
        case JobStatus.SCHEDULED:
            return _("due")
        case JobStatus.PENDING:
            return _("waits %(duration)s") % {"duration": _since(job.run_at)}
        case JobStatus.RUNNING if job.claimed_at is not None:
            return _("runs %(duration)s") % {"duration": _since(job.claimed_at)}
        case _ if job.status in ENDED and job.started_at and job.finished_at:
            taken = describe_duration(job.finished_at - job.started_at)
            return _("took %(duration)s") % {"duration": taken}
        case _:
            return EMPTY


def describe_attempts(record: JobRecord) -> str:
    """Return how many attempts were made of how many."""
    return f"{record.attempts} / {record.most_attempts}"


def is_stale(worker: WorkerHeartbeat) -> bool:
    """Say whether the worker was not heard of for longer than HEARTBEAT_TTL."""
    return timezone.now() - worker.last_seen_at > get_options().heartbeat_ttl


def _describe_scheduled(job: Job) -> str:
    values = {
        "when": describe_age(job.run_at),
        "attempt": job.attempts + 1,
        "most": job.most_attempts,
        "queue": job.queue,
    }
    if job.run_at <= timezone.now():
        return _("Is due; the next worker that looks makes it pending.")
    if job.attempts:
        return (
            _("Retries %(when)s: attempt %(attempt)d of %(most)d, queue %(queue)s.")
            % values
        )
    return _("Runs %(when)s in queue %(queue)s.") % values


def _describe_pending(job: Job) -> str:
    limit = timezone.now() - get_options().heartbeat_ttl
    alive = WorkerHeartbeat.objects.filter(last_seen_at__gte=limit)[:1000]
    values = {"duration": _since(job.run_at), "queue": job.queue}
    if not any(worker.serves(job.queue) for worker in alive):
        return (
            _(
                "Has waited for %(duration)s in queue %(queue)s; no live worker serves "
                "that queue."
            )
            % values
        )
    return (
        _("Has waited for %(duration)s in queue %(queue)s for a free worker.") % values
    )


def _describe_running(job: Job) -> str:
    worker = WorkerHeartbeat.objects.filter(pk__in=[job.worker_id]).first()
    if worker is None or is_stale(worker):
        seen = _("unknown") if worker is None else describe_age(worker.last_seen_at)
        return _(
            "Its worker was last heard of %(seen)s; another worker will rescue the job."
        ) % {"seen": seen}
    if job.cancel_requested_at is not None:
        return _("Was asked to stop %(when)s.") % {
            "when": describe_age(job.cancel_requested_at)
        }
    return _("Has run for %(duration)s, attempt %(attempt)d of %(most)d.") % {
        "duration": _since(job.claimed_at or job.run_at),
        "attempt": job.attempts,
        "most": job.most_attempts,
    }


def _describe_ended(job: Job) -> str:
    if job.prune_at is None:
        return _("Has ended; is kept until someone deletes it.")
    if job.prune_at <= timezone.now():
        return _("Has ended; is deleted when a worker next prunes.")
    return _("Has ended; is deleted %(when)s.") % {"when": describe_age(job.prune_at)}


def _since(moment: datetime) -> str:
    return describe_duration(timezone.now() - moment)
