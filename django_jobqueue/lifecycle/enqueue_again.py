"""Enqueue again: a new job with the call and options of one that has ended.

Called by Job.enqueue_again(), the admin and `jobqueue run-again`. The new job goes
through enqueue with all of its checks; the old one stays. Dead jobs are requeued.
"""

from __future__ import annotations

from typing import Any

from ..backoff import Backoff, load_backoff
from ..exceptions import JobNotEnded
from ..joboptions import GivenOptions
from ..models import Job
from ..options import get_options
from ..states import ENDED
from ..storage.database import Database
from ..storage.new_jobs import JobSpec
from .enqueue import enqueue_job


def enqueue_again(job: Job, *, db: Database | None = None) -> Job:
    """Enqueue a copy of a job that succeeded or was cancelled; return the new job.

    The copy is due now. It has no unique key, since the end of a job frees its key, and
    no `expires_at`. Raises JobNotEnded, or what enqueue raises, e.g. UnknownJobType.
    """
    db = db or Database(alias=get_options().database)
    ended = Job.objects.using(db.alias).filter(pk=job.pk).first()
    if ended is None or ended.status not in ENDED:
        status = "gone" if ended is None else ended.status
        raise JobNotEnded(
            f"The job {job.pk} is {status}; only one that succeeded or was cancelled "
            f"can be enqueued again."
        )
    spec = JobSpec(ended.job_type, ended.payload, **_copy_options(ended))
    spec.args = ended.args
    return enqueue_job(spec, db=db)


def _copy_options(job: Job) -> GivenOptions:
    return {
        "queue": job.queue,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "timeout": job.timeout,
        "backoff": _copy_backoff(job.backoff),
        "tags": job.tags or None,
        "meta": job.meta or None,
    }


def _copy_backoff(stored: Any) -> Backoff | None:
    if stored is None:
        return None
    try:
        return load_backoff(stored)
    except Exception:
        # Not written by this package: the copy uses the handler's backoff.
        return None
