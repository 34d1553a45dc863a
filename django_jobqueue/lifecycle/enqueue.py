"""Enqueue: nothing → pending, or scheduled when its time has not come.

Called by the public methods of Job.objects and of handlers, in the caller's transaction
if there is one. Everything is checked before the INSERT, and a unique key is decided by
the index (ON CONFLICT), so that no call ever aborts the caller's transaction.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple, Unpack
from uuid import UUID

from django.db import IntegrityError
from django.db.models import Q

from ..exceptions import InvalidOption, UniqueKeyBusy
from ..joboptions import NO_OPTIONS, GivenOptions, JobOptions, read_job_options
from ..models import Job
from ..models.record import make_id
from ..options import Options, get_options
from ..payloads import dump_args, dump_payload
from ..registry import get_handler
from ..states import JobStatus
from . import seams
from .database import Database, count_microseconds, make_rank
from .notify import notify_due_on_commit, notify_on_commit
from .report import report_enqueued

TRIES = 3


class JobSpec:
    """One job to be enqueued: what enqueue_many takes. `id` is known beforehand."""

    __slots__ = ("args", "id", "job_type", "options", "payload")

    def __init__(
        self,
        job_type: str,
        payload: dict[str, Any] | None = None,
        **options: Unpack[GivenOptions],
    ) -> None:
        # Positional arguments; only tasks of django.tasks have them.
        self.args: list[Any] = []
        self.id: UUID = make_id()
        self.job_type = job_type
        self.payload: dict[str, Any] = {} if payload is None else payload
        self.options = options

    def __repr__(self) -> str:
        return f"<JobSpec {self.job_type} {self.id}>"


class NewJob(NamedTuple):
    """A spec that was checked: the values of the row to be.

    A tuple, since a bulk makes thousands of them each second.
    """

    id: UUID
    job_type: str
    queue: str
    # JSON texts.
    payload: str
    args: str
    priority: int
    options: JobOptions


def enqueue_job(
    spec: JobSpec, *, db: Database | None = None, now: datetime | None = None
) -> Job:
    """Insert one job and return it, or the live one that has its unique key."""
    options = get_options()
    db = db or Database(alias=options.database)
    new = check_spec(spec, options)
    insert = _insert_postgres if db.is_postgres else _insert_portable
    for _ in range(TRIES):
        job = insert(db, new, options, now)
        if job is not None:
            job.was_created = True
            if job.status == JobStatus.PENDING:
                notify_on_commit(db.alias, job.queue, job.rank)
            else:
                seconds = (job.run_at - job.created_at).total_seconds()
                notify_due_on_commit(db.alias, seconds)
            if seams.listeners:
                seams.tell_enqueued([job])
            report_enqueued(db.alias, [(job.pk, job.job_type, job.queue, job.run_at)])
            return job
        # Someone has the key. It may end before we read it: then try again.
        if (job := _find_existing(db, new)) is not None:
            job.was_created = False
            return job
    raise UniqueKeyBusy(
        f"The unique key {new.options.unique_key!r} of {new.job_type} was taken and "
        f"freed on each of {TRIES} tries. Enqueue again."
    )


def _find_existing(db: Database, new: NewJob) -> Job | None:
    """Return the live job that has the key, or the one this very spec made before."""
    is_same = Q(pk=new.id)
    if new.options.unique_key is not None:
        is_same |= Q(job_type=new.job_type, unique_key=new.options.unique_key)
    found: Job | None = Job.objects.using(db.alias).filter(is_same).first()
    return found


def check_spec(spec: JobSpec, options: Options) -> NewJob:
    """Check everything about one job. Raises a JobQueueError, touches no database."""
    if not isinstance(spec, JobSpec):
        raise InvalidOption(
            f"enqueue_many takes JobSpec(job_type, payload, …) or handler.spec(…), "
            f"not {spec!r}."
        )
    handler = get_handler(spec.job_type)
    payload = dump_payload(spec.payload, limit=options.max_payload_bytes)
    args = "[]"
    if spec.args:
        limit = options.max_payload_bytes - len(payload.encode())
        args = dump_args(spec.args, limit=limit)
    handler.check_arguments(spec.payload, spec.args)
    given = read_job_options(spec.options)
    return NewJob(
        spec.id,
        handler.name,
        handler.queue if given.queue is None else given.queue,
        payload,
        args,
        handler.priority if given.priority is None else given.priority,
        given,
    )


# For a job without options, the usual one. PostgreSQL plans it anew each time, since
# Django prepares nothing (a pooler may stand between): what is not said costs nothing.
# run_at and created_at are the time of the statement by default, as the rank is. The id
# is new, so nothing can conflict.
INSERT_PLAIN_JOB = """
    INSERT INTO jobqueue_job (
        id,
        job_type,
        queue,
        payload,
        args,
        status,
        priority,
        rank
    )
    VALUES (
        %(id)s,
        %(job_type)s,
        %(queue)s,
        %(payload)s,
        %(args)s,
        'pending',
        %(priority)s,
        extract(epoch FROM statement_timestamp()) * 1000000 - %(head_start)s
    )
    ON CONFLICT DO NOTHING
    RETURNING rank, run_at
"""

INSERT_JOB = """
    INSERT INTO jobqueue_job (
        id,
        job_type,
        queue,
        payload,
        args,
        status,
        priority,
        rank,
        run_at,
        max_attempts,
        timeout,
        backoff,
        created_at,
        unique_key,
        expires_at,
        tags,
        meta
    )
    SELECT
        %(id)s::uuid,
        %(job_type)s::text,
        %(queue)s::text,
        %(payload)s::jsonb,
        %(args)s::jsonb,
        CASE WHEN due.run_at > due.now THEN 'scheduled' ELSE 'pending' END,
        %(priority)s::smallint,
        (extract(epoch FROM greatest(due.run_at, due.now)) * 1000000)::bigint
            - %(priority)s::bigint * %(aging)s::bigint,
        due.run_at,
        %(max_attempts)s::integer,
        %(timeout)s::interval,
        %(backoff)s::jsonb,
        due.now,
        %(unique_key)s::text,
        %(expires_at)s::timestamptz,
        coalesce(%(tags)s::jsonb, '[]'),
        coalesce(%(meta)s::jsonb, '{}')
    FROM (
        SELECT
            clock.now,
            coalesce(
                %(run_at)s::timestamptz,
                clock.now + coalesce(%(delay)s::interval, '0')
            ) AS run_at
        FROM (
            SELECT coalesce(%(now)s::timestamptz, statement_timestamp()) AS now
        ) AS clock
    ) AS due
    ON CONFLICT DO NOTHING
    RETURNING status, rank, run_at, created_at
"""


def _insert_postgres(
    db: Database, new: NewJob, options: Options, now: datetime | None
) -> Job | None:
    given = new.options
    parameters: dict[str, Any] = {
        "id": new.id,
        "job_type": new.job_type,
        "queue": new.queue,
        "payload": new.payload,
        "args": new.args,
        "priority": new.priority,
    }
    aging = count_microseconds(options.aging)
    if given is NO_OPTIONS and now is None and seams.clock is None:
        parameters["head_start"] = new.priority * aging
        rows = db.execute(INSERT_PLAIN_JOB, parameters)
        if not rows:
            return None
        [[rank, moment]] = rows
        return _make_job(db, new, JobStatus.PENDING, rank, moment, moment)
    parameters |= {
        "aging": aging,
        "now": now,
        "run_at": given.run_at,
        "delay": given.delay,
        "max_attempts": given.max_attempts,
        "timeout": given.timeout,
        "backoff": dump_backoff(given),
        "unique_key": given.unique_key,
        "expires_at": given.expires_at,
        "tags": given.tags,
        "meta": given.meta,
    }
    rows = db.execute(INSERT_JOB, parameters)
    return _make_job(db, new, *rows[0]) if rows else None


def _insert_portable(
    db: Database, new: NewJob, options: Options, now: datetime | None
) -> Job | None:
    job = plan_job(db, new, db.read_clock(now), options)
    rows = Job.objects.using(db.alias)
    if new.options.unique_key is not None:
        # In one transaction: a quick worker may end and remove the job between the two.
        with db.atomic():
            rows.bulk_create([job], ignore_conflicts=True)
            return job if rows.filter(pk=new.id).exists() else None
    try:
        # Nothing but its id can conflict here, and no other fault may be ignored.
        with db.shielded():
            rows.bulk_create([job])
    except IntegrityError:
        return None
    return job


def plan_job(db: Database, new: NewJob, now: datetime, options: Options) -> Job:
    """Build the row to be inserted, its status and rank included."""
    run_at = find_run_at(new, now)
    rank = make_rank(run_at, now, priority=new.priority, aging=options.aging)
    status = JobStatus.SCHEDULED if run_at > now else JobStatus.PENDING
    return _make_job(db, new, status, rank, run_at, now)


@cache
def _blank_row() -> dict[str, Any]:
    """Return the columns of a new job, in their order."""
    counters = ("attempts", "crashes", "lost", "given_back", "lease_token")
    names = [field.attname for field in Job._meta.concrete_fields]
    return {
        **dict.fromkeys(names),
        **dict.fromkeys(counters, 0),
        "isolate": False,
        "error": "",
    }


def _make_job(
    db: Database, new: NewJob, status: str, rank: int, run_at: datetime, now: datetime
) -> Job:
    """Build the model as if the row had been read back."""
    given = new.options
    row = {
        **_blank_row(),
        "id": new.id,
        "job_type": new.job_type,
        "queue": new.queue,
        "payload": {} if new.payload == "{}" else json.loads(new.payload),
        "args": [] if new.args == "[]" else json.loads(new.args),
        "status": status,
        "priority": new.priority,
        "rank": rank,
        "run_at": run_at,
        "max_attempts": given.max_attempts,
        "timeout": given.timeout,
        "backoff": given.backoff and given.backoff.dump(),
        "created_at": now,
        "unique_key": given.unique_key,
        "expires_at": given.expires_at,
        "tags": json.loads(given.tags) if given.tags else [],
        "meta": json.loads(given.meta) if given.meta else {},
    }
    return Job.from_db(db.alias, list(row), list(row.values()))


def dump_backoff(given: JobOptions) -> str | None:
    """Return the JSON text of Job.backoff."""
    return None if given.backoff is None else json.dumps(given.backoff.dump())


def find_run_at(new: NewJob, now: datetime) -> datetime:
    """Return when the job is due: as asked, or now."""
    given = new.options
    return given.run_at or (now + given.delay if given.delay else now)
