"""Reschedule: changes the time, priority or queue of a waiting job.

A scheduled job that becomes due is promoted at once. As in cancel, the UPDATE itself
tests the state.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from ..exceptions import InvalidOption, JobNotWaiting
from ..joboptions import read_job_options
from ..models import Job
from ..options import get_options
from ..states import JobStatus
from ..storage.database import Database, make_rank
from ..storage.endings import NO_RANK
from ..storage.notify import notify_due_on_commit, notify_on_commit

# Reads and writes race against claims: a job that changed in between is read again.
MAX_TRIES = 3
CHANGEABLE = {JobStatus.SCHEDULED, JobStatus.PENDING}


def reschedule_job(
    job: Job,
    *,
    run_at: datetime | None = None,
    delay: timedelta | float | None = None,
    db: Database | None = None,
    now: datetime | None = None,
) -> None:
    """Give a waiting job another time; one whose time is now becomes pending."""
    given = read_job_options({"run_at": run_at, "delay": delay})
    if given.run_at is None and given.delay is None:
        raise InvalidOption("reschedule() takes run_at or delay.")
    db = db or Database(alias=get_options().database)
    now = db.read_clock(now)
    moment = given.run_at or now + (given.delay or timedelta())

    def plan(job: Job) -> dict[str, Any]:
        if moment > now:
            # A kept rank is only valid for the old time.
            return {
                "run_at": moment,
                "status": JobStatus.SCHEDULED,
                "rank": NO_RANK,
            }
        if job.status == JobStatus.PENDING:
            # It is pending already; a new rank would only put it behind the others.
            return {"run_at": min(job.run_at, moment)}
        rank = make_rank(now, now, priority=job.priority, aging=get_options().aging)
        return {"run_at": moment, "status": JobStatus.PENDING, "rank": rank}

    _change(db, job, plan)


def change_job(
    job: Job,
    *,
    priority: int | None = None,
    queue: str | None = None,
    db: Database | None = None,
) -> None:
    """Give a waiting job another priority or queue; its waiting time still counts."""
    given = read_job_options({"priority": priority, "queue": queue})
    if given.priority is None and given.queue is None:
        raise InvalidOption("change() takes priority or queue.")
    aging = get_options().aging // timedelta(microseconds=1)

    def plan(job: Job) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        if given.queue is not None:
            columns["queue"] = given.queue
        if given.priority is not None:
            columns["priority"] = given.priority
            if job.rank != NO_RANK:
                columns["rank"] = job.rank + (job.priority - given.priority) * aging
        return columns

    _change(db or Database(alias=get_options().database), job, plan)


def _change(db: Database, job: Job, plan: Any) -> None:
    for _ in range(MAX_TRIES):
        fresh = Job.objects.using(db.alias).filter(pk=job.pk).first()
        if fresh is None or fresh.status not in CHANGEABLE:
            break
        columns = plan(fresh)
        unchanged = Job.objects.using(db.alias).filter(
            pk=job.pk, status=fresh.status, rank=fresh.rank, run_at=fresh.run_at
        )
        if unchanged.update(**columns):
            job.refresh_from_db(using=db.alias)
            if job.status == JobStatus.PENDING:
                notify_on_commit(db.alias, job.queue, job.rank)
            else:
                wait = job.run_at - db.read_clock(None)
                notify_due_on_commit(db.alias, wait.total_seconds())
            return
    status = "gone" if fresh is None else fresh.status
    raise JobNotWaiting(
        f"The job {job.pk} is {status}; only one that is scheduled or pending can be "
        f"changed."
    )
