"""Prune: succeeded, cancelled → gone, with their attempts, when retention says so.

Called by the maintenance of every worker and by `jobqueue prune`. An age was promised
when the job ended: `prune_at` lies after `finished_at`, and is waited for. A count is
decided here: `prune_at` equals `finished_at`, and the newest `keep` of a status stay.
`prune_at` NULL is never touched, and neither are dead jobs.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from uuid import UUID

from django.db import connections
from django.db.models import F, Q, QuerySet

from ..database_errors import (
    is_cancelled_sql,
    is_database_trouble,
    is_lock_wait,
    names_row,
)
from ..log_events import Event
from ..models import Attempt, Job
from ..options import Retention, get_options
from ..states import ENDED
from ..storage.bounded_waits import bounded_waits
from ..storage.commit_signals import report_pruned
from ..storage.database import Database
from ..storage.sql_parts import CLOCK

logger = logging.getLogger("django_jobqueue.worker")

# Rows of one transaction: 500 with their attempts take a few milliseconds.
BATCH_JOBS = 500
# Of a whole batch, and of the parts of one that was refused.
LONG_WAITS = {"lock_ms": 1_000, "statement_ms": 10_000}
SHORT_WAITS = {"lock_ms": 100, "statement_ms": 1_000}
# How long the parts of a refused batch are tried.
DIVIDE_SECONDS = 5.0
# Rows that one read of prune_older() covers.
WINDOW_JOBS = 5000

# Cancelled jobs first: a few must not wait for millions of others.
_STATUSES = sorted(str(status) for status in ENDED)
# Jobs with a retention by age. The others ended under a retention by count.
_IS_PROMISED = Q(prune_at__gt=F("finished_at"))


def prune_jobs(
    db: Database,
    *,
    limit: int = BATCH_JOBS,
    now: datetime | None = None,
    retention: Mapping[str, Retention] | None = None,
    passed: set[UUID] | None = None,
) -> int:
    """Delete up to `limit` jobs, at most 500, in one transaction; return how many.

    Skips the jobs in `passed` and adds those that cannot be deleted.
    """
    batches = prune_in_batches(
        db, limit=min(limit, BATCH_JOBS), now=now, retention=retention, passed=passed
    )
    return next((batch.total() for batch in batches), 0)


# Runs on the worker's own connection: an idle worker need not open Django's to prune.
HAS_DUE_JOBS = f"""
    WITH {CLOCK}
    SELECT
        EXISTS (
            SELECT 1
            FROM jobqueue_job
            WHERE
                status = 'succeeded'
                AND prune_at <= (SELECT now FROM clock)
        )
        OR EXISTS (
            SELECT 1
            FROM jobqueue_job
            WHERE
                status = 'cancelled'
                AND prune_at <= (SELECT now FROM clock)
        )
"""


def has_due_jobs(db: Database, *, now: datetime | None = None) -> bool:
    """Tell in one statement whether it is worth calling prune_jobs().

    True for jobs that ended under a count: this statement cannot tell which are due.
    """
    if db.is_postgres:
        [[answer]] = db.execute(HAS_DUE_JOBS, {"now": now}, is_rare=True)
        return bool(answer)
    due = Job.objects.using(db.alias).filter(
        status__in=_STATUSES, prune_at__lte=db.read_clock(now)
    )
    return bool(due.exists())


def prune_in_batches(
    db: Database,
    *,
    limit: int | None = None,
    now: datetime | None = None,
    retention: Mapping[str, Retention] | None = None,
    passed: set[UUID] | None = None,
) -> Iterator[Counter[str]]:
    """Delete what is due, up to `limit`; yield the count by status after each batch.

    Each batch is one transaction. Jobs that become due meanwhile, and locked ones, are
    left for the next call. `passed` as in prune_jobs().
    """
    left = limit
    passed = set() if passed is None else passed
    for due in find_due_jobs(db, now=now, retention=retention).values():
        rows = due.order_by("prune_at")
        for batch in _prune_rows(db, rows, limit=left, passed=passed):
            yield batch
            left = None if left is None else left - batch.total()


def prune_older(
    db: Database, *, before: datetime, limit: int | None = None
) -> Iterator[Counter[str]]:
    """Delete what ended before a moment, whatever retention says; yield as above.

    There is no index on the end of jobs, so this reads the whole table in the order of
    the primary key, in bounded steps. An empty count means that a step found nothing.
    """
    left = limit
    for window in _read_windows(db):
        rows = window.filter(_is_older(before))
        for batch in _prune_rows(db, rows, limit=left, passed=set()):
            yield batch
            left = None if left is None else left - batch.total()
        if left == 0:
            return
        yield Counter()


def find_due_jobs(
    db: Database,
    *,
    now: datetime | None = None,
    retention: Mapping[str, Retention] | None = None,
) -> dict[str, QuerySet[Job]]:
    """Return by status what prune_in_batches() would delete now."""
    retention = get_options().retention if retention is None else retention
    now = db.read_clock(now)
    due = {}
    for status in _STATUSES:
        ended = Job.objects.using(db.alias).filter(status=status, prune_at__lte=now)
        counted = _select_counted(ended, retention[status], now)
        due[status] = ended.filter(_IS_PROMISED | counted)
    return due


def find_older_jobs(db: Database, *, before: datetime) -> QuerySet[Job]:
    """Return what prune_older() would delete."""
    rows: QuerySet[Job] = Job.objects.using(db.alias)
    return rows.filter(_is_older(before))


def _is_older(before: datetime) -> Q:
    return Q(status__in=_STATUSES, finished_at__lt=before)


def _select_counted(ended: QuerySet[Job], retention: Retention, now: datetime) -> Q:
    """Return which jobs that ended under a count are due under this retention.

    Usually it is that count; after a change of the setting it may be an age.
    """
    if retention.age is not None:
        return Q(prune_at__lte=now - retention.age)
    last = None if retention.keep is None else _find_last(ended, retention.keep)
    if last is None:
        return Q(pk__in=[])
    is_before = Q(prune_at__lt=last.prune_at) | Q(pk__lte=last.pk)
    return Q(prune_at__lte=last.prune_at) & is_before


def _find_last(ended: QuerySet[Job], keep: int) -> Job | None:
    """Return the newest job that is due: one walk over the `keep` that stay.

    A batch shares its time of ending, so the id breaks ties: exactly `keep` stay.
    """
    newest = ended.exclude(_IS_PROMISED).order_by("-prune_at", "-pk")
    return newest.only("prune_at")[keep : keep + 1].first()


def _prune_rows(
    db: Database, rows: QuerySet[Job], *, limit: int | None, passed: set[UUID]
) -> Iterator[Counter[str]]:
    while limit is None or limit > 0:
        size = BATCH_JOBS if limit is None else min(limit, BATCH_JOBS)
        # Rows that are locked or refused would be the next batch again.
        free = rows.exclude(pk__in=passed) if passed else rows
        batch, held = _prune_or_divide(db, free, size=size)
        passed |= held
        if batch:
            yield batch
        elif not held:
            return
        limit = None if limit is None else limit - batch.total()


def _prune_or_divide(
    db: Database, rows: QuerySet[Job], *, size: int
) -> tuple[Counter[str], set[UUID]]:
    """Prune a batch; halve it when the database refuses a row, until that is alone.

    A foreign key or a trigger of the project may protect it. Stops after
    DIVIDE_SECONDS; the rest stays. Return as _prune_batch() does.
    """
    try:
        return _prune_batch(db, rows, size=size)
    except Exception as error:
        if is_database_trouble(error) or _concerns_all(error):
            raise
    pruned: Counter[str] = Counter()
    held: set[UUID] = set()
    groups = [list(rows.values_list("pk", flat=True)[:size])]
    deadline = time.monotonic() + DIVIDE_SECONDS
    while groups:
        group = groups.pop()
        if time.monotonic() > deadline:
            held.update(group)
            continue
        try:
            few = Job.objects.using(db.alias).filter(pk__in=group)
            count, busy = _prune_batch(db, few, size=len(group), limits=SHORT_WAITS)
        except Exception as error:
            if is_database_trouble(error):
                raise
            middle = len(group) // 2
            if middle:
                groups += [group[middle:], group[:middle]]
                continue
            held.update(group)
            text = "a job cannot be pruned; passed over"
            logger.warning(Event(text, job_id=group[0], error=error))
            continue
        pruned += count
        held |= busy
    return pruned, held


def _concerns_all(error: Exception) -> bool:
    """Tell whether a time-out is not about one row: the table is locked."""
    return (is_lock_wait(error) or is_cancelled_sql(error)) and not names_row(error)


def _prune_batch(
    db: Database,
    rows: QuerySet[Job],
    *,
    size: int,
    limits: Mapping[str, int] = LONG_WAITS,
) -> tuple[Counter[str], set[UUID]]:
    """Delete one batch in a transaction and count it by status.

    Also return the jobs that stay because another session holds one of their attempts.
    """
    features = connections[db.alias].features
    # Without this read an idle worker would take SQLite's only write lock each time.
    if not features.has_select_for_update and not rows.exists():
        return Counter(), set()
    with db.atomic(), bounded_waits(db, **limits):
        locked = rows.select_for_update(
            skip_locked=features.has_select_for_update_skip_locked
        )
        with db.walking_index():
            statuses = dict(locked.values_list("pk", "status")[:size])
        held = _find_held(db, statuses)
        for id in held:
            del statuses[id]
        Attempt.objects.using(db.alias).filter(job_id__in=statuses).delete()
        Job.objects.using(db.alias).filter(pk__in=statuses).delete()
        if statuses:
            report_pruned(db.alias, statuses)
    return Counter(statuses.values()), held


def _find_held(db: Database, ids: Collection[UUID]) -> set[UUID]:
    """Lock the attempts of these jobs; return the jobs whose attempts others hold."""
    if not connections[db.alias].features.has_select_for_update_skip_locked:
        return set()
    attempts = Attempt.objects.using(db.alias).filter(job_id__in=ids)
    free = set(
        attempts.select_for_update(skip_locked=True).values_list("pk", flat=True)
    )
    found = attempts.values_list("pk", "job_id")
    return {job_id for id, job_id in found if id not in free}


def _read_windows(db: Database) -> Iterator[QuerySet[Job]]:
    """Yield the table in pieces of 5,000 rows, in the order of the primary key."""
    rest = Job.objects.using(db.alias).order_by("pk")
    while True:
        end = rest.values_list("pk", flat=True)[WINDOW_JOBS - 1 : WINDOW_JOBS].first()
        if end is None:
            yield rest
            return
        yield rest.filter(pk__lte=end)
        rest = Job.objects.using(db.alias).order_by("pk").filter(pk__gt=end)
