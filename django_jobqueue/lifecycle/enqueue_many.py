"""Enqueue in bulk: any iterable of specs, in chunks and in constant memory.

Called by Job.objects.enqueue_many(). Jobs without a unique key go by COPY on
PostgreSQL, those with one by INSERT … ON CONFLICT DO NOTHING in the order of their
keys, so that two bulks cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connections

from ..exceptions import InvalidOption, JobQueueError
from ..joboptions import NO_OPTIONS
from ..models import Job
from ..options import Options, get_options
from . import seams
from .database import Database, count_microseconds, make_rank
from .enqueue import (
    JobSpec,
    NewJob,
    check_spec,
    dump_backoff,
    find_run_at,
    plan_job,
)
from .notify import notify_due_on_commit, notify_on_commit
from .report import report_enqueued

CHUNK = 2000
SLICE = 250


@dataclass(frozen=True, slots=True)
class EnqueueCounts:
    """How many jobs were made, and how many live ones already had the unique key."""

    created: int = 0
    existing: int = 0

    def __add__(self, other: EnqueueCounts) -> EnqueueCounts:
        return EnqueueCounts(
            self.created + other.created, self.existing + other.existing
        )


def enqueue_jobs(
    specs: Iterable[JobSpec], *, atomic: bool = False, db: Database | None = None
) -> EnqueueCounts:
    """Insert any number of jobs in chunks, in constant memory."""
    options = get_options()
    db = db or Database(alias=options.database)
    counts = EnqueueCounts()
    started = 0
    with db.atomic() if atomic else nullcontext():
        for chunk in _read_chunks(specs):
            try:
                news = _check_chunk(chunk, options, start=started)
                counts += _insert_chunk(db, news, options)
            except IntegrityError as cause:
                error = InvalidOption(
                    "A JobSpec of this chunk was enqueued before: its id is taken. "
                    "Make a new JobSpec for each job."
                )
                error.counts = EnqueueCounts() if atomic else counts
                raise error from cause
            except JobQueueError as error:
                # Rolled back as a whole: nothing of it was written.
                error.counts = EnqueueCounts() if atomic else counts
                raise
            started += len(chunk)
            if seams.listeners:
                seams.tell_enqueued(_read_created(db, news))
    return counts


def _read_chunks(specs: Iterable[JobSpec]) -> Iterator[list[JobSpec]]:
    """Read each chunk whole before it is sent: the generator may query as well."""
    iterator = iter(specs)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def _check_chunk(chunk: list[JobSpec], options: Options, *, start: int) -> list[NewJob]:
    news = []
    for index, spec in enumerate(chunk, start):
        try:
            news.append(check_spec(spec, options))
        except JobQueueError as error:
            error.index = index
            raise
    return news


def _insert_chunk(db: Database, news: list[NewJob], options: Options) -> EnqueueCounts:
    """Insert one chunk, in a transaction of its own if the caller has none."""
    now = db.read_clock(None)
    with db.atomic():
        if not db.is_postgres:
            return _insert_chunk_portable(db, news, options, now=now)
        keyed = [new for new in news if new.options.unique_key is not None]
        plain = [new for new in news if new.options.unique_key is None]
        _copy_jobs(db, plain, options, now=now)
        created = _insert_keyed_jobs(db, keyed, options, now=now)
        _notify_chunk(db, news, options, now=now)
        _report_chunk(db, news, created, now=now)
        return EnqueueCounts(len(plain) + len(created), len(keyed) - len(created))


def _read_created(db: Database, news: list[NewJob]) -> list[Job]:
    ids = [new.id for new in news]
    found = Job.objects.using(db.alias).in_bulk(ids)
    return [found[id] for id in ids if id in found]


def _notify_chunk(
    db: Database, news: list[NewJob], options: Options, *, now: datetime
) -> None:
    """Say the best of each queue, and what is due first."""
    due: set[tuple[str, int]] = set()
    delays = []
    for new in news:
        if new.options is not NO_OPTIONS and (run_at := find_run_at(new, now)) > now:
            delays.append(run_at - now)
        else:
            due.add((new.queue, new.priority))
    # The highest priority of each queue comes last.
    best = dict(sorted(due))
    for queue, priority in best.items():
        rank = make_rank(now, now, priority=priority, aging=options.aging)
        notify_on_commit(db.alias, queue, rank)
    if delays:
        notify_due_on_commit(db.alias, min(delays).total_seconds())


def _report_chunk(
    db: Database, news: list[NewJob], created: set[UUID], *, now: datetime
) -> None:
    """Tell of the new jobs: those without a key, and those whose key was free."""
    report_enqueued(
        db.alias,
        (
            (new.id, new.job_type, new.queue, find_run_at(new, now))
            for new in news
            if new.options.unique_key is None or new.id in created
        ),
    )


def _insert_chunk_portable(
    db: Database, news: list[NewJob], options: Options, *, now: datetime
) -> EnqueueCounts:
    jobs = [plan_job(db, new, now, options) for new in news]
    rows = Job.objects.using(db.alias)
    keyed = [job for job in jobs if job.unique_key is not None]
    plain = [job for job in jobs if job.unique_key is None]
    rows.bulk_create(plain)
    rows.bulk_create(keyed, ignore_conflicts=True)
    created: set[UUID] = set()
    for start in range(0, len(keyed), 500):
        ids = [job.pk for job in keyed[start : start + 500]]
        created |= set(rows.filter(pk__in=ids).values_list("pk", flat=True))
    _report_chunk(db, news, created, now=now)
    return EnqueueCounts(len(plain) + len(created), len(keyed) - len(created))


COPY_JOBS = """
    COPY jobqueue_job (
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
        expires_at,
        tags,
        meta
    )
    FROM STDIN
"""


# Without what their options say: a default costs the server less than a text to read.
COPY_PLAIN_JOBS = """
    COPY jobqueue_job (
        id,
        job_type,
        queue,
        payload,
        args,
        status,
        priority,
        rank,
        run_at,
        created_at
    )
    FROM STDIN
"""


def _copy_jobs(
    db: Database, news: list[NewJob], options: Options, *, now: datetime
) -> None:
    plain = [new for new in news if new.options is NO_OPTIONS]
    special = [new for new in news if new.options is not NO_OPTIONS]
    with connections[db.alias].cursor() as cursor:
        if plain:
            with cursor.copy(COPY_PLAIN_JOBS) as copy:
                # In slices: the server works on one while we write the next.
                for start in range(0, len(plain), SLICE):
                    rows = plain[start : start + SLICE]
                    copy.write("".join(_format_rows(rows, options, now=now)))
        if special:
            with cursor.copy(COPY_JOBS) as copy:
                for row in _plan_rows(special, options, now=now):
                    copy.write_row(row)


def _format_rows(
    news: list[NewJob], options: Options, *, now: datetime
) -> Iterator[str]:
    """Yield the rows of jobs without options as COPY reads them.

    Most bulks have no others, and write_row() would take three times as long. Names
    cannot hold anything that COPY gives a meaning to, and JSON only a backslash.
    """
    aging = count_microseconds(options.aging)
    rank = make_rank(now, now, priority=0, aging=options.aging)
    rest = f"{now}\t{now}\n"
    for id, job_type, queue, payload, args, priority, _ in news:
        if "\\" in payload:
            payload = payload.replace("\\", "\\\\")
        if "\\" in args:
            args = args.replace("\\", "\\\\")
        yield (
            f"{id.hex}\t{job_type}\t{queue}\t{payload}\t{args}\tpending\t{priority}\t"
            f"{rank - priority * aging}\t{rest}"
        )


INSERT_KEYED_JOBS = """
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
        expires_at,
        tags,
        meta,
        unique_key
    )
    SELECT
        id,
        job_type,
        queue,
        payload::jsonb,
        args::jsonb,
        status,
        priority,
        rank,
        run_at,
        max_attempts,
        timeout,
        backoff::jsonb,
        created_at,
        expires_at,
        tags::jsonb,
        meta::jsonb,
        unique_key
    FROM unnest(
        %(ids)s::uuid[],
        %(job_types)s::text[],
        %(queues)s::text[],
        %(payloads)s::text[],
        %(args)s::text[],
        %(statuses)s::text[],
        %(priorities)s::smallint[],
        %(ranks)s::bigint[],
        %(run_ats)s::timestamptz[],
        %(max_attempts)s::integer[],
        %(timeouts)s::interval[],
        %(backoffs)s::text[],
        %(created_ats)s::timestamptz[],
        %(expires_ats)s::timestamptz[],
        %(tags)s::text[],
        %(metas)s::text[],
        %(unique_keys)s::text[]
    ) AS new (
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
        expires_at,
        tags,
        meta,
        unique_key
    )
    ORDER BY job_type, unique_key
    ON CONFLICT (job_type, unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id
"""
KEYED_PARAMETERS = (
    "ids",
    "job_types",
    "queues",
    "payloads",
    "args",
    "statuses",
    "priorities",
    "ranks",
    "run_ats",
    "max_attempts",
    "timeouts",
    "backoffs",
    "created_ats",
    "expires_ats",
    "tags",
    "metas",
)


def _insert_keyed_jobs(
    db: Database, news: list[NewJob], options: Options, *, now: datetime
) -> set[UUID]:
    """Insert the jobs with a unique key and return the ids of those that are new.

    The order keeps two bulks from a deadlock.
    """
    if not news:
        return set()
    columns = zip(*_plan_rows(news, options, now=now), strict=True)
    parameters = dict(zip(KEYED_PARAMETERS, map(list, columns), strict=True))
    parameters["unique_keys"] = [new.options.unique_key for new in news]
    return {id for (id,) in db.execute(INSERT_KEYED_JOBS, parameters)}


def _plan_rows(
    news: list[NewJob], options: Options, *, now: datetime
) -> Iterator[tuple[Any, ...]]:
    """Yield the values of each row, in the order of the columns above."""
    for new in news:
        given = new.options
        run_at = find_run_at(new, now)
        yield (
            new.id,
            new.job_type,
            new.queue,
            new.payload,
            new.args,
            "scheduled" if run_at > now else "pending",
            new.priority,
            make_rank(run_at, now, priority=new.priority, aging=options.aging),
            run_at,
            given.max_attempts,
            given.timeout,
            dump_backoff(given),
            now,
            given.expires_at,
            given.tags or "[]",
            given.meta or "{}",
        )
