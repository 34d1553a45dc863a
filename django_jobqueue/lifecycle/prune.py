"""Prune: succeeded, cancelled → gone, with their attempts, when retention says so.

Called by the maintenance of every worker and by `jobqueue prune`. An age was promised
when the job ended: `prune_at` lies after `finished_at`, and is waited for. A count is
decided here: `prune_at` equals `finished_at`, and the newest `keep` of a status stay.
`prune_at` NULL is never touched, and neither are dead jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

from django.db import connections
from django.db.models import F, Q, QuerySet

from ..models import Attempt, Job
from ..options import Retention, get_options
from ..states import ENDED
from .database import Database
from .report import report_pruned

# Rows of one transaction: 500 with their attempts take a few milliseconds.
BATCH = 500
# Ids that one look of prune_older() passes.
WINDOW = 5000

# Cancelled ones first: few shall not wait for millions.
_STATUSES = sorted(str(status) for status in ENDED)
# By an age, at its end. The others ended under a count.
_IS_PROMISED = Q(prune_at__gt=F("finished_at"))


def prune_jobs(
    db: Database,
    *,
    limit: int = BATCH,
    now: datetime | None = None,
    retention: Mapping[str, Retention] | None = None,
) -> int:
    """Delete up to `limit` jobs, at most 500, in one transaction; return how many."""
    batches = prune_in_batches(
        db, limit=min(limit, BATCH), now=now, retention=retention
    )
    return next((batch.total() for batch in batches), 0)


HAS_DUE_JOBS = """
    WITH clock AS MATERIALIZED (
        SELECT coalesce(%(now)s::timestamptz, clock_timestamp()) AS now
    )
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

    Of jobs that ended under a count it cannot say which are to go: for them it is.
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
) -> Iterator[Counter[str]]:
    """Delete what is due, up to `limit`; yield the count by status after each batch.

    Each batch is a transaction of its own. What becomes due meanwhile is left for the
    next call, and so is what others hold.
    """
    left = limit
    for due in find_due_jobs(db, now=now, retention=retention).values():
        for batch in _prune_rows(db, due.order_by("prune_at"), limit=left):
            yield batch
            left = None if left is None else left - batch.total()


def prune_older(
    db: Database, *, before: datetime, limit: int | None = None
) -> Iterator[Counter[str]]:
    """Delete what ended before a moment, whatever retention says; yield as above.

    No index knows when jobs ended, so this passes over the whole table, in the order of
    the primary key and by bounded looks: an empty count says that one found nothing.
    """
    left = limit
    for window in _read_windows(db):
        for batch in _prune_rows(db, window.filter(_is_older(before)), limit=left):
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
    """Say which of the jobs that ended under a count are to go under this retention.

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
    """Return the newest job that is to go: one walk over the `keep` that stay.

    A batch shares its time of ending, so the id breaks ties: exactly `keep` stay.
    """
    newest = ended.exclude(_IS_PROMISED).order_by("-prune_at", "-pk")
    return newest.only("prune_at")[keep : keep + 1].first()


def _prune_rows(
    db: Database, rows: QuerySet[Job], *, limit: int | None
) -> Iterator[Counter[str]]:
    while limit is None or limit > 0:
        size = BATCH if limit is None else min(limit, BATCH)
        batch = _prune_batch(db, rows, size=size)
        if not batch:
            return
        yield batch
        limit = None if limit is None else limit - batch.total()


def _prune_batch(db: Database, rows: QuerySet[Job], *, size: int) -> Counter[str]:
    """Delete one batch in a transaction and count it by status."""
    features = connections[db.alias].features
    # Without this look an idle worker would take SQLite's only write lock each time.
    if not features.has_select_for_update and not rows.exists():
        return Counter()
    with db.atomic():
        locked = rows.select_for_update(
            skip_locked=features.has_select_for_update_skip_locked
        )
        with db.walking_index():
            statuses = dict(locked.values_list("pk", "status")[:size])
        Attempt.objects.using(db.alias).filter(job_id__in=statuses).delete()
        Job.objects.using(db.alias).filter(pk__in=statuses).delete()
        if statuses:
            report_pruned(db.alias, statuses)
    return Counter(statuses.values())


def _read_windows(db: Database) -> Iterator[QuerySet[Job]]:
    """Yield the table in pieces of 5,000 rows, in the order of the primary key."""
    rest = Job.objects.using(db.alias).order_by("pk")
    while True:
        end = rest.values_list("pk", flat=True)[WINDOW - 1 : WINDOW].first()
        if end is None:
            yield rest
            return
        yield rest.filter(pk__lte=end)
        rest = Job.objects.using(db.alias).order_by("pk").filter(pk__gt=end)
