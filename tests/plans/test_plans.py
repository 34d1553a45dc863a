"""The hot statements use their index, and read pages in proportion to the jobs moved.

The number of finished, scheduled or pending rows must not matter. Each statement is
measured on a small table and on one with 1,000,000 finished, 1,000,000 scheduled and
100,000 pending jobs, with statistics of an empty and of a full queue, with a generic
and a custom plan; claims and backlog reads also with a plan made on the empty table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

from django_jobqueue.lifecycle.claim import (
    CLAIM_JOBS,
    CLAIM_SUSPECTS,
    FIND_FREE_QUEUES,
    dump_spans,
)
from django_jobqueue.lifecycle.finish_died import WRITE_DIED
from django_jobqueue.lifecycle.finish_moved import WRITE_MOVED
from django_jobqueue.lifecycle.finish_succeeded import WRITE_SUCCEEDED
from django_jobqueue.lifecycle.promote import PROMOTE_JOBS
from django_jobqueue.lifecycle.prune import BATCH_JOBS, HAS_DUE_JOBS, find_due_jobs
from django_jobqueue.storage.backlog import COUNT_BACKLOG, FIND_NEXT_DUE, READ_BACKLOG
from django_jobqueue.storage.claims import HIGHEST, LOWEST, NIL, Span, whole_queue
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.ownership import READ_OWNED_JOBS
from django_jobqueue.storage.progress import WRITE_PROGRESS
from django_jobqueue.worker.running.connections import close_database, open_database
from tests.plans.explaining import EarlyPlan, Plan, explain, read_plan

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.django_db(transaction=True),
]

FILL = """
    INSERT INTO jobqueue_job (
        id, job_type, queue, status, rank, run_at, created_at, attempts, lease_token,
        claimed_at, finished_at, prune_at, worker_id, isolate
    )
    SELECT
        gen_random_uuid(),
        'testapp.nothing',
        'queue' || number %% 5,
        kind.status,
        -- Suspects come last: a plan that scans all others to find one is noticed.
        CASE WHEN %(isolate)s THEN 10000000 ELSE 0 END + number,
        now() + CASE kind.status
            WHEN 'scheduled' THEN interval '1 day' ELSE interval '-1 day'
        END + number * interval '1 millisecond',
        now(),
        CASE WHEN kind.status IN ('succeeded', 'running') THEN 1 ELSE 0 END,
        CASE WHEN kind.status IN ('succeeded', 'running') THEN 1 ELSE 0 END,
        CASE WHEN kind.status IN ('succeeded', 'running') THEN now() END,
        CASE WHEN kind.status = 'succeeded' THEN now() END,
        CASE WHEN kind.status = 'succeeded' THEN now() + interval '1 day' END,
        CASE WHEN kind.status = 'running' THEN %(worker_id)s::uuid END,
        %(isolate)s
    FROM (VALUES (%(status)s)) AS kind (status)
    CROSS JOIN generate_series(1, %(count)s) AS number
"""
SMALL = {"succeeded": 1_000, "scheduled": 1_000, "pending": 500}
LARGE = {"succeeded": 1_000_000, "scheduled": 1_000_000, "pending": 100_000}
RUNNING = 100
SUSPECTS = 50
NOW = {"now": None}


class Filled:
    """A filled table and a worker's session that queries it."""

    # Set when the table is filled.
    running: Sequence[UUID] = ()

    def __init__(self, counts: dict[str, int], *, statistics: str) -> None:
        self.worker = uuid4()
        self.db = open_database("default", name="plans")
        self.early: dict[str, EarlyPlan] = {}
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE jobqueue_job, jobqueue_workerheartbeat")
            cursor.execute("ALTER TABLE jobqueue_job SET (autovacuum_enabled = off)")
            cursor.execute("ANALYZE jobqueue_job")
        if statistics == "empty":
            self._plan_early()
        for status, count in {**counts, "running": RUNNING}.items():
            self._fill(status, count)
        self._fill("pending", SUSPECTS, isolate=True)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO jobqueue_workerheartbeat (id, last_seen_at)"
                " VALUES (%s, now() - interval '1 hour')",
                [self.worker],
            )
            cursor.execute(
                "SELECT array_agg(id) FROM jobqueue_job WHERE status = 'running'"
            )
            self.running = cursor.fetchone()[0]
            if statistics == "full":
                cursor.execute("VACUUM ANALYZE jobqueue_job")

    def _plan_early(self) -> None:
        assert self.db.own is not None
        for name, (statement, _, _) in list_statements(self).items():
            if name.startswith(("claim", "read")):
                self.early[name] = EarlyPlan(self.db.own, statement)

    def _fill(self, status: str, count: int, *, isolate: bool = False) -> None:
        values = {"status": status, "count": count, "isolate": isolate}
        with connection.cursor() as cursor:
            cursor.execute(FILL, {**values, "worker_id": self.worker})

    def explain(self, statement: str, parameters: dict[str, Any], plan: str) -> Plan:
        assert self.db.own is not None
        return explain(self.db.own, statement, parameters, plan=plan)

    def explain_all(self) -> tuple[dict[tuple[str, str], Plan], dict[str, int]]:
        """Return (statement, kind of plan) → its plan, and how many rows it moves."""
        plans, rows = {}, {"prune": BATCH_JOBS}
        for name, (statement, parameters, count) in list_statements(self).items():
            rows[name] = count
            for kind in ("generic", "custom"):
                plans[name, kind] = self.explain(statement, parameters, kind)
            if name in self.early:
                plans[name, "early"] = self.early[name].explain(parameters)
        plans["prune", "find"], plans["prune", "delete"] = self.explain_prune()
        return plans, rows

    def explain_prune(self) -> tuple[Plan, Plan]:
        """Explain the two queries of a batch, which Django's connection plans."""
        later = timezone.now() + timedelta(days=9)
        db = Database(alias="default")
        due = find_due_jobs(db, now=later)["succeeded"]
        with transaction.atomic():
            locked = due.order_by("prune_at").select_for_update(skip_locked=True)
            rows = locked.values_list("pk", "status")[:BATCH_JOBS]
            with db.walking_index():
                found = rows.explain(format="json", analyze=True, buffers=True)
                ids = [pk for pk, _ in rows]
            with connection.cursor() as cursor:
                cursor.execute(
                    "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)"
                    " DELETE FROM jobqueue_job WHERE id = ANY(%s)",
                    [ids],
                )
                deleted = cursor.fetchone()[0]
            transaction.set_rollback(True)
        return read_plan(json.loads(found)), read_plan(deleted)

    def close(self) -> None:
        close_database(self.db)
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE jobqueue_job, jobqueue_workerheartbeat")
            cursor.execute("ALTER TABLE jobqueue_job RESET (autovacuum_enabled)")


def list_statements(table: Filled) -> dict[str, tuple[str, dict[str, Any], int]]:
    """Return name → statement, parameters, and the number of rows it must move."""
    worker, ids = table.worker, list(table.running)
    count = len(ids)
    ended = {
        "worker_id": worker,
        **NOW,
        "ids": ids,
        "tokens": [1] * count,
        "results": [None] * count,
        "ages": [0.1] * count,
        "keep_succeeded": timedelta(days=1),
        "keep_cancelled": timedelta(days=7),
        "aging": 0,
        "numbers": [1] * count,
        "labels": ["failed"] * count,
        "exception_classes": [""] * count,
        "messages": [""] * count,
        "tracebacks": [""] * count,
        "errors": [""] * count,
        "raises": [1] * count,
        "crashes": [1] * count,
        "losses": [0] * count,
        "cleared": [False] * count,
    }
    moved = {
        "statuses": ["pending"] * count,
        "delays": [None] * count,
        "refunds": [0] * count,
        "troubles": [0] * count,
        "unknowns": [False] * count,
        "cancelled_error": "",
        "no_rank": 0,
        "kept_ranks": [False] * count,
        "progressed": [False] * count,
    }
    died = {
        "reasons": ["exception"] * count,
        "fingerprints": [""] * count,
        "shared_id": "jobqueue.original_id",
    }
    # By then all scheduled jobs are due.
    later = {"now": timezone.now() + timedelta(days=9), "limit": 100, "aging": 0}
    later |= {"no_rank": 0, "passed": []}
    five = [f"queue{n}" for n in range(5)]
    one = {"queues": ["queue1"], "limits": [50], "worker_id": worker, **NOW}
    one["passed"] = []
    many = {"queues": five, "limits": [10] * 5, "worker_id": worker, **NOW}
    one |= dump_spans([whole_queue("queue1")])
    many |= {**dump_spans(list(map(whole_queue, five))), "passed": []}
    # Two ranges of each queue, as read by a worker that has claimed from it before.
    parts = [
        Span(name, low, NIL, high)
        for name in five
        for low, high in ((LOWEST, -1), (0, HIGHEST))
    ]
    too, without = {"with_suspects": True}, {"with_suspects": False}
    return {
        # First: a claim that was rolled back leaves index entries to skip.
        "read the backlog": (READ_BACKLOG, NOW, 1),
        "count backlog": (COUNT_BACKLOG, {"queues": many["queues"], "limit": 100}, 1),
        "claim from one queue": (CLAIM_JOBS, {**one, **too}, 50),
        "claim from five queues": (CLAIM_JOBS, {**many, **too}, 50),
        "claim no suspects from one queue": (CLAIM_JOBS, {**one, **without}, 50),
        "claim no suspects from five queues": (CLAIM_JOBS, {**many, **without}, 50),
        "claim behind cursors": (
            CLAIM_JOBS,
            {**many, **without, **dump_spans(parts)},
            50,
        ),
        "find free queues": (FIND_FREE_QUEUES, {**many, **without}, 5),
        "claim suspects from one queue": (CLAIM_SUSPECTS, one, SUSPECTS // 5),
        "claim suspects from five queues": (CLAIM_SUSPECTS, many, 50),
        "promote": (PROMOTE_JOBS, later, 100),
        # Returns one row: whether all ends were written.
        "finish": (WRITE_SUCCEEDED, {**ended, "count": count}, 1),
        "retry": (WRITE_MOVED, {**ended, **moved}, count),
        "die": (WRITE_DIED, {**ended, **died}, count),
        "progress": (
            WRITE_PROGRESS,
            {**ended, "progresses": ["{}"] * count},
            count,
        ),
        "reconcile": (
            READ_OWNED_JOBS,
            {"worker_id": worker, "after": NIL, "limit": 1000},
            count,
        ),
        "find next due": (FIND_NEXT_DUE, NOW, 1),
        "has due jobs": (HAS_DUE_JOBS, {"now": later["now"]}, 1),
    }


ALLOWED = {
    "find free queues": {"jobqueue_job_claim"},
    "claim from one queue": {"jobqueue_job_claim", "jobqueue_job_pkey"},
    "claim from five queues": {"jobqueue_job_claim", "jobqueue_job_pkey"},
    "claim no suspects from one queue": {"jobqueue_job_claim", "jobqueue_job_pkey"},
    "claim no suspects from five queues": {"jobqueue_job_claim", "jobqueue_job_pkey"},
    "claim behind cursors": {"jobqueue_job_claim", "jobqueue_job_pkey"},
    "claim suspects from one queue": {"jobqueue_job_suspects", "jobqueue_job_pkey"},
    "claim suspects from five queues": {"jobqueue_job_suspects", "jobqueue_job_pkey"},
    "promote": {"jobqueue_job_due", "jobqueue_job_pkey"},
    "finish": {"jobqueue_job_pkey"},
    "retry": {"jobqueue_job_pkey"},
    "die": {"jobqueue_job_pkey"},
    "progress": {"jobqueue_job_pkey"},
    "rescue": {"jobqueue_job_owner", "jobqueue_job_pkey"},
    "reconcile": {"jobqueue_job_owner"},
    "count backlog": {"jobqueue_job_claim"},
    "read the backlog": {
        "jobqueue_job_claim",
        "jobqueue_job_suspects",
        "jobqueue_job_due",
    },
    "has due jobs": {"jobqueue_job_prune"},
    "find next due": {"jobqueue_job_due"},
    "prune": {"jobqueue_job_prune", "jobqueue_job_pkey"},
}


@pytest.fixture(params=["empty", "full"])
def statistics(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def measured(
    transactional_db: None, statistics: str
) -> dict[tuple[str, str], tuple[Plan, Plan, int]]:
    """Return (statement, kind of plan) → its plan on a small and on a large table."""
    plans: dict[str, dict[tuple[str, str], Plan]] = {}
    rows: dict[str, int] = {}
    for size, counts in (("small", SMALL), ("large", LARGE)):
        with closing(Filled(counts, statistics=statistics)) as table:
            plans[size], rows = table.explain_all()
    return {
        key: (plans["small"][key], plans["large"][key], rows[key[0]])
        for key in plans["small"]
    }


def test_hot_statements_read_their_index_and_no_more_pages_as_the_table_grows(
    measured: dict[tuple[str, str], tuple[Plan, Plan, int]],
) -> None:
    report = []
    faults = []
    for (name, kind), (small, large, rows) in measured.items():
        line = f"{name} ({kind}): {small.pages} pages on small, {large.pages} on large"
        report.append(line)
        if large.scans_the_table:
            faults.append(f"{line}: scans the table")
        if not large.indexes <= ALLOWED[name]:
            faults.append(f"{line}: reads {large.indexes - ALLOWED[name]}")
        # A DELETE without RETURNING returns no rows.
        if large.rows != (0 if kind == "delete" else rows):
            faults.append(f"{line}: {large.rows} rows, not {rows}")
        # A larger index is a level or two deeper: some more pages for each row moved.
        if large.pages > 2 * small.pages + 20 * max(rows, 5):
            faults.append(f"{line}: grows with the table")
    print("\n".join(report))
    assert not faults, "\n".join(faults)
