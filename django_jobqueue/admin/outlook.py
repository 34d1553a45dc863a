"""What happens next to a job: a sentence for its page, a short text for the list."""

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
    """Return what happens next to a job. Reads the workers."""
    match job.status:
        case JobStatus.SCHEDULED:
            return _describe_scheduled(job)
        case JobStatus.PENDING:
            return _describe_pending(job)
        case JobStatus.RUNNING:
            return _describe_running(job)
        case JobStatus.BLOCKED:
            return _("Blocked until its dependencies allow it to run.")
        case _:
            return _describe_ended(job)


def describe_dead(dead_job: DeadJob) -> str:
    """Return why the job is dead, and how it can run again."""
    return _("Dead: %(reason)s. Does not run again unless it is requeued.") % {
        "reason": dead_job.get_reason_display()
    }


def describe_shortly(job: Job) -> str:
    """Return how long the job waits, runs or took. Reads nothing."""
    now = timezone.now()
    match job.status:
        case JobStatus.SCHEDULED if job.run_at > now:
            return describe_age(job.run_at)
        case JobStatus.SCHEDULED:
            return _("due")
        case JobStatus.PENDING:
            return _("waiting %(duration)s") % {"duration": _since(job.run_at)}
        case JobStatus.RUNNING if job.claimed_at is not None:
            return _("running %(duration)s") % {"duration": _since(job.claimed_at)}
        case _ if job.status in ENDED and job.started_at and job.finished_at:
            taken = describe_duration(job.finished_at - job.started_at)
            return _("took %(duration)s") % {"duration": taken}
        case _:
            return EMPTY


def describe_attempts(record: JobRecord) -> str:
    """Return the attempts made and the most attempts."""
    return f"{record.attempts} / {record.most_attempts}"


def is_stale(worker: WorkerHeartbeat) -> bool:
    """Return whether the last heartbeat is older than HEARTBEAT_TTL."""
    return timezone.now() - worker.last_seen_at > get_options().heartbeat_ttl


def _describe_scheduled(job: Job) -> str:
    values = {
        "when": describe_age(job.run_at),
        "attempt": job.attempts + 1,
        "most": job.most_attempts,
        "queue": job.queue,
    }
    if job.run_at <= timezone.now():
        return _("Due; the next worker that polls makes it pending.")
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
                "Waiting for %(duration)s in queue %(queue)s; no live worker serves "
                "that queue."
            )
            % values
        )
    return _("Waiting for %(duration)s in queue %(queue)s for a free worker.") % values


def _describe_running(job: Job) -> str:
    worker = WorkerHeartbeat.objects.filter(pk__in=[job.worker_id]).first()
    if worker is None or is_stale(worker):
        seen = _("unknown") if worker is None else describe_age(worker.last_seen_at)
        return _(
            "The last heartbeat of its worker: %(seen)s. Another worker will rescue "
            "the job."
        ) % {"seen": seen}
    if job.cancel_requested_at is not None:
        return _("Asked to stop %(when)s.") % {
            "when": describe_age(job.cancel_requested_at)
        }
    return _("Running for %(duration)s, attempt %(attempt)d of %(most)d.") % {
        "duration": _since(job.claimed_at or job.run_at),
        "attempt": job.attempts,
        "most": job.most_attempts,
    }


def _describe_ended(job: Job) -> str:
    if job.prune_at is None:
        return _("Ended; kept until it is deleted by hand.")
    if job.prune_at <= timezone.now():
        return _("Ended; deleted at the next prune.")
    return _("Ended; deleted %(when)s.") % {"when": describe_age(job.prune_at)}


def _since(moment: datetime) -> str:
    return describe_duration(timezone.now() - moment)
