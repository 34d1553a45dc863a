"""Enqueue in bulk: any iterable of specs, in chunks and in constant memory.

Called by Job.objects.enqueue_many(). On PostgreSQL, jobs without a unique key are
written by COPY, those with one by INSERT … ON CONFLICT DO NOTHING in the order of their
keys: two bulks cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import DatabaseError, IntegrityError, OperationalError, connections

from ..exceptions import InvalidOption, JobQueueError, UniqueKeyBusy
from ..joboptions import NO_OPTIONS
from ..models import Job
from ..options import Options, get_options
from ..storage import test_hooks
from ..storage.commit_signals import report_enqueued
from ..storage.database import Database, count_microseconds, make_rank
from ..storage.new_jobs import (
    KEYED_COLUMNS,
    NEW_COLUMNS,
    TIMED_COLUMNS,
    JobSpec,
    NewJob,
    check_spec,
    dump_backoff,
    find_run_at,
)
from ..storage.notify import notify_due_on_commit, notify_on_commit
from .enqueue import MAX_TRIES, hint_at_migrate, is_hidden_conflict, refuse_dead_ids
from .portable import enqueue_many as portable

# Jobs of one transaction, and of one write to a COPY.
CHUNK_JOBS = 2000
SLICE_JOBS = 250
# The most text in one INSERT of jobs with a unique key.
MAX_STATEMENT_BYTES = 16_000_000


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
                used = [spec.id for spec in chunk if not spec.use()]
                counts += _try_to_insert(db, news, options, used)
            except IntegrityError as cause:
                error = InvalidOption(
                    "A JobSpec of this chunk was enqueued before: its id is taken. "
                    "Make a new JobSpec for each job."
                )
                error.counts = EnqueueCounts() if atomic else counts
                raise error from cause
            except JobQueueError as error:
                # With atomic, everything is rolled back: nothing was written.
                error.counts = EnqueueCounts() if atomic else counts
                raise
            except DatabaseError as error:
                hint_at_migrate(error)
                raise
            started += len(chunk)
            if test_hooks.listeners:
                test_hooks.notify_enqueued(_read_created(db, news))
    return counts


def _read_chunks(specs: Iterable[JobSpec]) -> Iterator[list[JobSpec]]:
    """Read each chunk whole before it is sent: the generator may query as well."""
    iterator = iter(specs)
    while chunk := list(islice(iterator, CHUNK_JOBS)):
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


def _try_to_insert(
    db: Database, news: list[NewJob], options: Options, used: list[UUID]
) -> EnqueueCounts:
    """Insert one chunk; again if its snapshot does not show who has a unique key."""
    for tries_left in reversed(range(MAX_TRIES)):
        try:
            return _insert_chunk(db, news, options, used)
        except OperationalError as error:
            if not is_hidden_conflict(error):
                raise
            # Inside the caller's transaction a retry would use the same snapshot.
            if connections[db.alias].in_atomic_block or not tries_left:
                raise UniqueKeyBusy(
                    "A job that this transaction cannot see has a unique key of this "
                    "chunk: it was enqueued after the transaction took its snapshot. "
                    "Enqueue in another transaction."
                ) from error
    raise AssertionError("unreachable: the last try returns or raises")


def _insert_chunk(
    db: Database, news: list[NewJob], options: Options, used: list[UUID]
) -> EnqueueCounts:
    """Insert one chunk, in its own transaction if the caller has none.

    `used` are the ids that other jobs may have had.
    """
    now = db.read_clock(None)
    keyed = [new for new in news if new.options.unique_key is not None]
    plain = [new for new in news if new.options.unique_key is None]
    with db.atomic():
        if not db.is_postgres:
            created = portable.insert_jobs(db, news, options, now=now)
        else:
            _copy_jobs(db, plain, options, now=now)
            created = _insert_keyed_jobs(db, keyed, options, now=now)
            _notify_chunk(db, news, options, now=now)
        refuse_dead_ids(db, used)
        _report_chunk(db, news, created, now=now)
        return EnqueueCounts(len(plain) + len(created), len(keyed) - len(created))


def _read_created(db: Database, news: list[NewJob]) -> list[Job]:
    ids = [new.id for new in news]
    found = Job.objects.using(db.alias).in_bulk(ids)
    return [found[id] for id in ids if id in found]


def _notify_chunk(
    db: Database, news: list[NewJob], options: Options, *, now: datetime
) -> None:
    """Notify of the lowest rank of each queue, and of the first job that is due."""
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
    """Report the new jobs: those without a key, and those whose key was free."""
    report_enqueued(
        db.alias,
        (
            (new.id, new.job_type, new.queue, find_run_at(new, now))
            for new in news
            if new.options.unique_key is None or new.id in created
        ),
    )


_NEXT = ",\n        "

COPY_JOBS = f"""
    COPY jobqueue_job (
        {_NEXT.join(NEW_COLUMNS)}
    )
    FROM STDIN
"""


# Without the columns of options: a default costs the server less than a text to read.
COPY_PLAIN_JOBS = f"""
    COPY jobqueue_job (
        {_NEXT.join(TIMED_COLUMNS)}
    )
    FROM STDIN
"""


def _copy_jobs(
    db: Database, news: list[NewJob], options: Options, *, now: datetime
) -> None:
    plain = [new for new in news if new.options is NO_OPTIONS]
    special = [new for new in news if new.options is not NO_OPTIONS]
    connection = connections[db.alias]
    # Django does not wrap what a COPY raises.
    with connection.wrap_database_errors, connection.cursor() as cursor:
        if plain:
            with cursor.copy(COPY_PLAIN_JOBS) as copy:
                # In slices: the server works on one while we write the next.
                for start in range(0, len(plain), SLICE_JOBS):
                    rows = plain[start : start + SLICE_JOBS]
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
    contain no character that is special to COPY, JSON only the backslash.
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


INSERT_KEYED_JOBS = f"""
    INSERT INTO jobqueue_job (
        {_NEXT.join(KEYED_COLUMNS)}
    )
    SELECT
        {_NEXT.join(KEYED_COLUMNS)}
    FROM unnest(
        {_NEXT.join(f"%({name})s::{type}[]" for name, type in KEYED_COLUMNS.items())}
    ) AS new (
        {_NEXT.join(KEYED_COLUMNS)}
    )
    ORDER BY job_type COLLATE "C", unique_key COLLATE "C"
    ON CONFLICT (job_type, unique_key) WHERE unique_key IS NOT NULL DO NOTHING
    RETURNING id
"""


def _insert_keyed_jobs(
    db: Database, news: list[NewJob], options: Options, *, now: datetime
) -> set[UUID]:
    """Insert the jobs with a unique key and return the ids of those that are new.

    The order keeps two bulks from a deadlock, also over the statements of one chunk:
    Python sorts by code points, as the collation "C" does.
    """
    created: set[UUID] = set()
    ordered = sorted(news, key=lambda new: (new.job_type, new.options.unique_key or ""))
    for part in _split_by_bytes(ordered):
        columns = zip(*_plan_rows(part, options, now=now), strict=True)
        parameters = dict(zip(NEW_COLUMNS, map(list, columns), strict=True))
        parameters["unique_key"] = [new.options.unique_key for new in part]
        created |= {id for (id,) in db.execute(INSERT_KEYED_JOBS, parameters)}
    return created


def _split_by_bytes(news: list[NewJob]) -> Iterator[list[NewJob]]:
    """Split jobs for statements of at most MAX_STATEMENT_BYTES of text.

    The server takes no more than 1 GB.
    """
    part: list[NewJob] = []
    size = 0
    for new in news:
        texts = (new.payload, new.args, new.options.tags, new.options.meta)
        weight = sum(len(text) for text in texts if text)
        if part and size + weight > MAX_STATEMENT_BYTES:
            yield part
            part, size = [], 0
        part.append(new)
        size += weight
    if part:
        yield part


def _plan_rows(
    news: list[NewJob], options: Options, *, now: datetime
) -> Iterator[tuple[Any, ...]]:
    """Yield the values of each row, in the order of NEW_COLUMNS."""
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
            now,
            given.max_attempts,
            given.timeout,
            dump_backoff(given),
            given.expires_at,
            given.tags or "[]",
            given.meta or "{}",
        )
