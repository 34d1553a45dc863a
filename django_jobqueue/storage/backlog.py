"""Backlog: which jobs wait, and for how long. Reads only.

Called by the worker's claim loop, rarely while it is idle, and by a supervisor that
scales. Every answer comes from the first entries of an index.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import Q, QuerySet

from ..models import Job
from ..states import JobStatus
from .database import Database
from .sql_parts import CLOCK


class Backlog(NamedTuple):
    """What one read has found."""

    # The queues with pending jobs that are no suspects.
    queues: list[str]
    # The queues with suspects that wait to run alone.
    suspects: list[str]
    # Seconds until the next scheduled job is due; None: there is none.
    next_due: float | None


# One statement, so that an idle worker adds little load.
# One probe of the index for each queue, however many jobs it has. Not min(run_at): with
# statistics of an empty queue that may read the whole index.
READ_BACKLOG = """
    WITH RECURSIVE found AS (
        (
            SELECT queue
            FROM jobqueue_job
            WHERE
                status = 'pending'
                AND NOT isolate
            ORDER BY queue
            LIMIT 1
        )
        UNION ALL
        SELECT (
            SELECT job.queue
            FROM jobqueue_job AS job
            WHERE
                job.status = 'pending'
                AND job.queue > found.queue
                AND NOT job.isolate
            ORDER BY job.queue
            LIMIT 1
        )
        FROM found
        WHERE found.queue IS NOT NULL
    )
    SELECT
        ARRAY(
            SELECT queue
            FROM found
            WHERE queue IS NOT NULL
        ),
        ARRAY(
            SELECT DISTINCT queue
            FROM jobqueue_job
            WHERE
                status = 'pending'
                AND isolate
        ),
        (
            SELECT extract(
                epoch FROM run_at - coalesce(%(now)s::timestamptz, clock_timestamp())
            )
            FROM jobqueue_job
            WHERE status = 'scheduled'
            ORDER BY run_at
            LIMIT 1
        )
"""


def read_backlog(db: Database, *, now: datetime | None = None) -> Backlog:
    """Read which queues have jobs, and when the next scheduled job is due."""
    if db.is_postgres:
        [[queues, suspects, seconds]] = db.execute(
            READ_BACKLOG, {"now": now}, is_rare=True
        )
        return Backlog(queues, suspects, None if seconds is None else float(seconds))
    first = _read_first(_find_scheduled(db))
    return Backlog(
        _list_queues(db, isolate=False),
        _list_queues(db, isolate=True),
        None if first is None else (first - db.read_clock(now)).total_seconds(),
    )


def _list_queues(db: Database, *, isolate: bool) -> list[str]:
    rows = Job.objects.using(db.alias).filter(status=JobStatus.PENDING, isolate=isolate)
    return list(rows.order_by("queue").values_list("queue", flat=True).distinct())


class NextDue(NamedTuple):
    """When the next scheduled job becomes due."""

    # Whether one is due already: if promote has left it, another session holds it.
    is_overdue: bool
    # Seconds until the next one after this moment; None: there is none.
    seconds: float | None


FIND_NEXT_DUE = f"""
    WITH {CLOCK}
    SELECT
        EXISTS (
            SELECT 1
            FROM jobqueue_job
            WHERE
                status = 'scheduled'
                AND run_at <= (SELECT now FROM clock)
        ),
        (
            SELECT extract(epoch FROM run_at - (SELECT now FROM clock))
            FROM jobqueue_job
            WHERE
                status = 'scheduled'
                AND run_at > (SELECT now FROM clock)
            ORDER BY run_at
            LIMIT 1
        )
"""


def find_next_due(db: Database, *, now: datetime | None = None) -> NextDue:
    """Read whether a scheduled job is due, and when the next one is."""
    if db.is_postgres:
        [[is_overdue, seconds]] = db.execute(FIND_NEXT_DUE, {"now": now})
        return NextDue(is_overdue, None if seconds is None else float(seconds))
    now = db.read_clock(now)
    rows = _find_scheduled(db)
    later = _read_first(rows.filter(run_at__gt=now))
    return NextDue(
        rows.filter(run_at__lte=now).exists(),
        None if later is None else (later - now).total_seconds(),
    )


def _find_scheduled(db: Database) -> QuerySet[Job]:
    rows: QuerySet[Job] = Job.objects.using(db.alias).filter(status=JobStatus.SCHEDULED)
    return rows


def _read_first(rows: QuerySet[Job]) -> datetime | None:
    """Return when the first of these jobs is due, None if there is none."""
    found = rows.order_by("run_at").values_list("run_at")[:1]
    for (run_at,) in found:
        if run_at is None:
            # Django reads None from SQLite if the stored value is no time.
            raise ValueError("the time of a scheduled job cannot be read")
        return run_at
    return None


# As in the claim, each queue costs a walk of its own index entries only.
COUNT_BACKLOG = """
    SELECT count(*)
    FROM
        unnest(%(queues)s::text[]) AS served (queue)
        CROSS JOIN LATERAL (
            SELECT job.id
            FROM jobqueue_job AS job
            WHERE
                job.status = 'pending'
                AND job.queue = served.queue
                AND NOT job.isolate
            ORDER BY
                job.rank,
                job.id
            LIMIT %(limit)s
        ) AS waiting
"""


def count_backlog(
    db: Database, queues: list[str] | None, *, exclude: list[str], limit: int
) -> int:
    """Return how many jobs of these queues (None: all) wait for a free slot.

    Counts up to `limit`: beyond that, the number makes no difference. Suspects are left
    out, since a separate process runs them.
    """
    waiting = read_backlog(db).queues
    served = [
        name
        for name in waiting
        if name not in exclude and (queues is None or name in queues)
    ]
    if not served:
        return 0
    if db.is_postgres:
        parameters = {"queues": served, "limit": limit}
        [[count]] = db.execute(COUNT_BACKLOG, parameters, is_rare=True)
        return min(int(count), limit)
    rows = Job.objects.using(db.alias).filter(
        status=JobStatus.PENDING, isolate=False, queue__in=served
    )
    return int(rows.values("pk")[:limit].count())


# A queue that this worker serves; `queues` NULL: all but the excluded ones.
_IS_SERVED = """
    (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[]))
    AND queue <> ALL(%(exclude)s::text[])
""".strip()


class WorkLeft(NamedTuple):
    """Whether jobs of some queues are pending, running or due."""

    has_any: bool
    # Without the waiting jobs whose rows other sessions hold: a claim skips them.
    has_free: bool


# For --burst, which ends when no work is left, and does not wait for ever for a row
# that another session holds.
FIND_WORK_LEFT = f"""
    WITH free_pending AS MATERIALIZED (
        SELECT id
        FROM jobqueue_job
        WHERE
            status = 'pending'
            AND {_IS_SERVED}
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    free_due AS MATERIALIZED (
        SELECT id
        FROM jobqueue_job
        WHERE
            status = 'scheduled'
            AND run_at <= (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))
            AND {_IS_SERVED}
        LIMIT 1
        FOR NO KEY UPDATE SKIP LOCKED
    ),
    free AS MATERIALIZED (
        SELECT
            EXISTS (SELECT 1 FROM free_pending)
            OR EXISTS (SELECT 1 FROM free_due)
            OR EXISTS (
                SELECT 1
                FROM jobqueue_job
                WHERE
                    worker_id IS NOT NULL
                    AND {_IS_SERVED}
            ) AS has_free
    )
    SELECT
        free.has_free
        OR EXISTS (
            SELECT 1
            FROM jobqueue_job
            WHERE
                status = 'pending'
                AND {_IS_SERVED}
        )
        OR EXISTS (
            SELECT 1
            FROM jobqueue_job
            WHERE
                status = 'scheduled'
                AND run_at <= (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))
                AND {_IS_SERVED}
        ),
        free.has_free
    FROM free
"""


def find_work_left(
    db: Database,
    queues: list[str] | None,
    *,
    exclude: list[str],
    now: datetime | None = None,
) -> WorkLeft:
    """Tell whether work of these queues (None: all) is left."""
    if db.is_postgres:
        parameters = {"queues": queues, "exclude": exclude, "now": now}
        [row] = db.execute(FIND_WORK_LEFT, parameters, is_rare=True)
        return WorkLeft(*row)
    rows = Job.objects.using(db.alias).exclude(queue__in=exclude)
    if queues is not None:
        rows = rows.filter(queue__in=queues)
    is_due = Q(status=JobStatus.SCHEDULED, run_at__lte=db.read_clock(now))
    is_live = Q(status__in=[JobStatus.PENDING, JobStatus.RUNNING])
    has_any = bool(rows.filter(is_live | is_due).exists())
    return WorkLeft(has_any, has_any)
