"""Queue counts: how many jobs each queue has, up to a limit. Reads only.

Called by stats.py for the admin's page of queues. Pending jobs are counted queue by
queue through the claim index; the others in one pass over at most `total_limit` rows.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import Count, Min, QuerySet

from ..models import DeadJob, Job
from ..states import DEAD, JobStatus
from .backlog import read_backlog
from .database import Database


class QueueCount(NamedTuple):
    """The jobs of one queue in one status (or `dead`)."""

    queue: str
    status: str
    number: int
    # The earliest run_at among those counted.
    run_at: datetime


# The parentheses keep each LIMIT with its own part of the UNION.
COUNT_BY_QUEUE = """
    SELECT
        waiting.queue,
        'pending',
        counted.number,
        counted.run_at
    FROM
        unnest(%(queues)s::text[]) AS waiting (queue)
        CROSS JOIN LATERAL (
            SELECT
                count(*) AS number,
                min(first.run_at) AS run_at
            FROM (
                SELECT job.run_at
                FROM jobqueue_job AS job
                WHERE
                    job.status = 'pending'
                    AND job.queue = waiting.queue
                ORDER BY
                    job.rank,
                    job.id
                LIMIT %(limit)s
            ) AS first
        ) AS counted
    WHERE counted.number > 0
    UNION ALL
    SELECT
        scheduled.queue,
        'scheduled',
        count(*),
        min(scheduled.run_at)
    FROM (
        SELECT
            queue,
            run_at
        FROM jobqueue_job
        WHERE status = 'scheduled'
        ORDER BY run_at
        LIMIT %(total_limit)s
    ) AS scheduled
    GROUP BY scheduled.queue
    UNION ALL
    SELECT
        running.queue,
        'running',
        count(*),
        min(running.run_at)
    FROM (
        SELECT
            queue,
            run_at
        FROM jobqueue_job
        WHERE worker_id IS NOT NULL
        LIMIT %(total_limit)s
    ) AS running
    GROUP BY running.queue
    UNION ALL
    SELECT
        dead.queue,
        'dead',
        count(*),
        min(dead.run_at)
    FROM (
        SELECT
            queue,
            run_at
        FROM jobqueue_deadjob
        ORDER BY died_at DESC
        LIMIT %(total_limit)s
    ) AS dead
    GROUP BY dead.queue
"""


def count_by_queue(db: Database, *, limit: int, total_limit: int) -> list[QueueCount]:
    """Count pending, scheduled, running and dead jobs by queue.

    Pending jobs are counted up to `limit` in each queue; of each other status
    `total_limit` rows are counted at most, the next due and the last to die first.
    """
    if not db.is_postgres:
        return _count_portable(db)
    found = read_backlog(db)
    parameters = {
        "queues": sorted({*found.queues, *found.suspects}),
        "limit": limit,
        "total_limit": total_limit,
    }
    rows = db.execute(COUNT_BY_QUEUE, parameters, is_rare=True)
    return [QueueCount(*row) for row in rows]


def _count_portable(db: Database) -> list[QueueCount]:
    """Count every row: the databases without LATERAL hold small queues."""
    jobs = Job.objects.using(db.alias)
    dead = DeadJob.objects.using(db.alias)
    return [
        *_group(jobs.filter(status=JobStatus.PENDING), JobStatus.PENDING),
        *_group(jobs.filter(status=JobStatus.SCHEDULED), JobStatus.SCHEDULED),
        *_group(jobs.filter(worker_id__isnull=False), JobStatus.RUNNING),
        *_group(dead, DEAD),
    ]


def _group(rows: QuerySet[Job] | QuerySet[DeadJob], status: str) -> list[QueueCount]:
    groups = rows.order_by().values_list("queue")
    found = groups.annotate(Count("pk"), Min("run_at"))
    return [QueueCount(queue, str(status), n, at) for queue, n, at in found]
