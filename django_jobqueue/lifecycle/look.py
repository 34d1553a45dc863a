"""Look: what waits, and for how long. Reads only; an idle worker does nothing else.

Called by the worker's claim loop, now and then while it is idle, and by a supervisor
that scales. Every part is answered from the first entries of an index.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import Q

from ..models import Job
from ..states import JobStatus
from .database import Database


class Look(NamedTuple):
    """What one look has seen."""

    # The queues with pending jobs, but for suspects.
    queues: list[str]
    # The queues with suspects that wait to run alone.
    suspects: list[str]
    # Seconds until the next scheduled job is due; None: there is none.
    next_due: float | None


# One statement, since an idle worker shall not be seen in the statistics of a database.
# One probe of the index for each queue, however many jobs it has. Not min(run_at): with
# statistics of an empty queue that may read the whole index.
LOOK_AROUND = """
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


def look_around(db: Database, *, now: datetime | None = None) -> Look:
    """See which queues have jobs, and when the next scheduled one is due."""
    if db.is_postgres:
        [[queues, suspects, seconds]] = db.execute(
            LOOK_AROUND, {"now": now}, is_rare=True
        )
        return Look(queues, suspects, None if seconds is None else float(seconds))
    return Look(
        _list_queues(db, isolate=False),
        _list_queues(db, isolate=True),
        find_next_due(db, now=now),
    )


def _list_queues(db: Database, *, isolate: bool) -> list[str]:
    rows = Job.objects.using(db.alias).filter(status=JobStatus.PENDING, isolate=isolate)
    return list(rows.order_by("queue").values_list("queue", flat=True).distinct())


FIND_NEXT_DUE = """
    SELECT extract(
        epoch FROM run_at - coalesce(%(now)s::timestamptz, clock_timestamp())
    )
    FROM jobqueue_job
    WHERE status = 'scheduled'
    ORDER BY run_at
    LIMIT 1
"""


def find_next_due(db: Database, *, now: datetime | None = None) -> float | None:
    """Return the seconds until the next scheduled job is due, None if there is none."""
    if db.is_postgres:
        found = db.execute(FIND_NEXT_DUE, {"now": now})
        return float(found[0][0]) if found else None
    rows = Job.objects.using(db.alias).filter(status=JobStatus.SCHEDULED)
    first = rows.order_by("run_at").values_list("run_at", flat=True).first()
    return None if first is None else (first - db.read_clock(now)).total_seconds()


# Like the claim, so that each queue costs a walk of its own index entries only.
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
    out, since they have a process of their own.
    """
    waiting = look_around(db).queues
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


HAS_WORK = """
    SELECT
        EXISTS (
            SELECT 1
            FROM jobqueue_job
            WHERE
                status = 'pending'
                AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[]))
                AND queue <> ALL(%(exclude)s::text[])
        )
        OR EXISTS (
            SELECT 1
            FROM jobqueue_job
            WHERE
                worker_id IS NOT NULL
                AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[]))
                AND queue <> ALL(%(exclude)s::text[])
        )
        OR EXISTS (
            SELECT 1
            FROM jobqueue_job
            WHERE
                status = 'scheduled'
                AND run_at <= (SELECT coalesce(%(now)s::timestamptz, clock_timestamp()))
                AND (%(queues)s::text[] IS NULL OR queue = ANY(%(queues)s::text[]))
                AND queue <> ALL(%(exclude)s::text[])
        )
"""


def has_work(
    db: Database,
    queues: list[str] | None,
    *,
    exclude: list[str],
    now: datetime | None = None,
) -> bool:
    """Tell whether anything of these queues (None: all) is pending, running or due."""
    if db.is_postgres:
        parameters = {"queues": queues, "exclude": exclude, "now": now}
        [[answer]] = db.execute(HAS_WORK, parameters)
        return bool(answer)
    rows = Job.objects.using(db.alias).exclude(queue__in=exclude)
    if queues is not None:
        rows = rows.filter(queue__in=queues)
    is_due = Q(status=JobStatus.SCHEDULED, run_at__lte=db.read_clock(now))
    is_live = Q(status__in=[JobStatus.PENDING, JobStatus.RUNNING])
    return bool(rows.filter(is_live | is_due).exists())
