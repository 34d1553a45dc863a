"""Enqueue: nothing → pending, or scheduled when it is due later.

Called by the public methods of Job.objects and of handlers, in the caller's transaction
if there is one. Everything is checked before the INSERT, and the index decides about a
unique key (ON CONFLICT): no call aborts the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

from django.db import DatabaseError, OperationalError, connections
from django.db.models import Q

from ..exceptions import InvalidOption, UniqueKeyBusy
from ..joboptions import NO_OPTIONS
from ..models import DeadJob, Job
from ..options import Options, get_options
from ..states import JobStatus
from ..storage import test_hooks
from ..storage.commit_signals import report_enqueued
from ..storage.database import Database, count_microseconds
from ..storage.new_jobs import (
    KEYED_COLUMNS,
    PLAIN_COLUMNS,
    JobSpec,
    NewJob,
    check_spec,
    dump_backoff,
    make_job,
)
from ..storage.notify import notify_due_on_commit, notify_on_commit
from .portable import enqueue as portable

# How often a unique key may be taken and freed meanwhile.
MAX_TRIES = 3

_Insert: TypeAlias = Callable[[Database, NewJob, Options, datetime | None], Job | None]


def enqueue_job(
    spec: JobSpec, *, db: Database | None = None, now: datetime | None = None
) -> Job:
    """Insert one job and return it, or the live one that has its unique key."""
    options = get_options()
    db = db or Database(alias=options.database)
    new = check_spec(spec, options)
    insert = _choose_insert(db, new, is_id_fresh=spec.use())
    for _ in range(MAX_TRIES):
        try:
            job = insert(db, new, options, now)
        except DatabaseError as error:
            hint_at_migrate(error)
            raise
        if job is not None:
            job.was_created = True
            _report_created(db, job)
            return job
        # A live job has the key. If it ends before we read it, try again.
        if (job := _find_existing(db, new)) is not None:
            job.was_created = False
            return job
    raise UniqueKeyBusy(
        f"The unique key {new.options.unique_key!r} of {new.job_type} was taken and "
        f"freed on each of {MAX_TRIES} tries. Enqueue again."
    )


def _choose_insert(db: Database, new: NewJob, *, is_id_fresh: bool) -> _Insert:
    """Return the function that inserts the job, with the checks that it needs."""
    insert = _insert_job if db.is_postgres else portable.insert_job
    if not is_id_fresh:
        insert = partial(_insert_again, insert)
    if new.options.unique_key is not None and db.is_postgres:
        insert = partial(_insert_keyed, insert)
    return insert


def _report_created(db: Database, job: Job) -> None:
    """Notify workers, and report the new job to test hooks and receivers."""
    if job.status == JobStatus.PENDING:
        notify_on_commit(db.alias, job.queue, job.rank)
    else:
        seconds = (job.run_at - job.created_at).total_seconds()
        notify_due_on_commit(db.alias, seconds)
    if test_hooks.listeners:
        test_hooks.notify_enqueued([job])
    report_enqueued(db.alias, [(job.pk, job.job_type, job.queue, job.run_at)])


def hint_at_migrate(error: DatabaseError) -> None:
    """Add a note to the error of a missing table: run migrate. Keeps its type."""
    text = str(error)
    is_missing = "no such table" in text or "does not exist" in text
    if is_missing and "jobqueue_job" in text:
        error.add_note(
            "The tables of django_jobqueue are missing in this database. "
            "Run: python manage.py migrate"
        )


def _insert_keyed(
    insert: _Insert, db: Database, new: NewJob, options: Options, now: datetime | None
) -> Job | None:
    """Insert a job with a unique key, also in a transaction that keeps its snapshot.

    There, a live job that has the key but is not in the snapshot makes the INSERT fail.
    The error must not abort the caller's transaction.
    """
    is_inside = connections[db.alias].in_atomic_block
    if is_inside and not db.keeps_snapshot():
        return insert(db, new, options, now)
    try:
        with db.shielded():
            return insert(db, new, options, now)
    except OperationalError as error:
        if not is_hidden_conflict(error):
            raise
        if is_inside:
            raise UniqueKeyBusy(
                f"A job of {new.job_type} that this transaction cannot see has the "
                f"unique key {new.options.unique_key!r}: it was enqueued after the "
                f"transaction took its snapshot. Enqueue in another transaction."
            ) from error
        # Outside a transaction the next statement sees that job.
        return None


def is_hidden_conflict(error: OperationalError) -> bool:
    """Tell whether a row that is not in the snapshot has the key.

    Other serialization failures abort the transaction and have a reason in the detail.
    """
    cause = error.__cause__
    detail = getattr(getattr(cause, "diag", None), "message_detail", None)
    return getattr(cause, "sqlstate", None) == "40001" and not detail


def _insert_again(
    insert: _Insert, db: Database, new: NewJob, options: Options, now: datetime | None
) -> Job | None:
    """Insert a job whose id was used before, unless a dead job has that id.

    Checked after the INSERT, which waits for a transaction that moves such a job.
    """
    with db.atomic():
        job = insert(db, new, options, now)
        refuse_dead_ids(db, [new.id])
        return job


def refuse_dead_ids(db: Database, ids: Sequence[UUID]) -> None:
    """Raise InvalidOption if a dead job has one of these ids."""
    for start in range(0, len(ids), 500):
        dead = DeadJob.objects.using(db.alias).filter(pk__in=ids[start : start + 500])
        found = dead.values_list("pk", flat=True).first()
        if found is not None:
            raise InvalidOption(
                f"A JobSpec with the id {found} was enqueued before, and its job is "
                f"among the dead jobs. Requeue that one, or make a new JobSpec for "
                f"each job."
            )


def _find_existing(db: Database, new: NewJob) -> Job | None:
    """Return the live job that has the key, or the job this spec made before."""
    is_same = Q(pk=new.id)
    if new.options.unique_key is not None:
        is_same |= Q(job_type=new.job_type, unique_key=new.options.unique_key)
    found: Job | None = Job.objects.using(db.alias).filter(is_same).first()
    return found


_NEXT = ",\n        "

# For a job without options, the usual case. PostgreSQL plans it each time, since Django
# prepares nothing (there may be a pooler): columns that are left out cost nothing.
# run_at and created_at default to the time of the statement, as in the rank. The id is
# new, so nothing can conflict.
INSERT_PLAIN_JOB = f"""
    INSERT INTO jobqueue_job (
        {_NEXT.join(PLAIN_COLUMNS)}
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

INSERT_JOB = f"""
    INSERT INTO jobqueue_job (
        {_NEXT.join(KEYED_COLUMNS)}
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
        due.now,
        %(max_attempts)s::integer,
        %(timeout)s::interval,
        %(backoff)s::jsonb,
        %(expires_at)s::timestamptz,
        coalesce(%(tags)s::jsonb, '[]'),
        coalesce(%(meta)s::jsonb, '{{}}'),
        %(unique_key)s::text
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


def _insert_job(
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
    if given is NO_OPTIONS and now is None and test_hooks.clock is None:
        parameters["head_start"] = new.priority * aging
        rows = db.execute(INSERT_PLAIN_JOB, parameters)
        if not rows:
            return None
        [[rank, moment]] = rows
        return make_job(db, new, JobStatus.PENDING, rank, moment, moment)
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
    return make_job(db, new, *rows[0]) if rows else None
