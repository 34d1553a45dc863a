"""The numbers of decisions 0001, 0002 and 0007: claim and finish, in several ways.

    python -m tests.postgres -- python docs/design/decisions/measure.py 4000 3 0007

The arguments are jobs, rounds and the decision, all of them if none is given. Run it
from the root of the checkout. The ways take turns; the median of each counts.
"""

# ruff: noqa: E402  Models can be imported once Django is set up.

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

sys.path.insert(0, os.getcwd())

from benchmarks.quick import prepare

prepare()

from django.db import connection

from django_jobqueue import Job, JobSpec
from django_jobqueue.lifecycle.claim import claim_jobs
from django_jobqueue.lifecycle.finish import finish_attempts
from django_jobqueue.options import get_options
from django_jobqueue.outcomes import Succeeded
from django_jobqueue.storage.claims import Suspects
from django_jobqueue.storage.database import Database
from django_jobqueue.storage.endings import Ending
from django_jobqueue.worker.running import connections

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
DECISION = sys.argv[3] if len(sys.argv) > 3 else ""
JOIN_METHODS = {"enable_seqscan", "enable_hashjoin", "enable_mergejoin"}
PLANNING = {"plan_cache_mode", *JOIN_METHODS}


def fill(count: int) -> None:
    Job.objects.enqueue_many(JobSpec("benchmarks.nothing", {}) for _ in range(count))


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def drain(db: Database, *, batch: int = 200) -> float:
    """Claim and finish all pending jobs; return how many a second."""
    worker_id, options = uuid4(), get_options()
    count, started = 0, time.perf_counter()
    while claims := claim_jobs(db, {"default": batch}, worker_id=worker_id):
        moment = time.monotonic()
        ends = [Ending(claim=c, outcome=Succeeded(), started=moment) for c in claims]
        finish_attempts(db, ends, worker_id=worker_id, options=options)
        count += len(claims)
    return count / (time.perf_counter() - started)


@contextmanager
def own_connection(*, without: set[str] = frozenset()) -> Iterator[Database]:
    """Open a worker's connection that lacks some of its session settings."""
    session = {k: v for k, v in connections.SESSION.items() if k not in without}
    with patch.object(connections, "SESSION", session):
        db = connections.open_database("default", name="measure")
    try:
        yield db
    finally:
        connections.close_database(db)


def drain_full_queue(db: Database) -> float:
    """0001: statistics are right, only the way differs."""
    execute("TRUNCATE jobqueue_job, jobqueue_attempt")
    fill(JOBS)
    execute("ANALYZE jobqueue_job")
    return drain(db)


def drain_after_quiet_time(db: Database) -> float:
    """0002: the worker has planned its statements while the queue was nearly empty."""
    execute("TRUNCATE jobqueue_job, jobqueue_attempt")
    execute("ALTER TABLE jobqueue_job SET (autovacuum_enabled = off)")
    fill(100)
    execute("ANALYZE jobqueue_job")
    drain(db, batch=10)
    fill(JOBS)
    return drain(db)


DROP_SUSPECTS = "DROP INDEX IF EXISTS jobqueue_job_suspects"
CREATE_SUSPECTS = """
    CREATE INDEX jobqueue_job_suspects
    ON jobqueue_job (queue, rank, id)
    WHERE status = 'pending' AND isolate
"""


def drain_beside_index(*, has_index: bool) -> float:
    """0007: what the index costs when there are no suspects.

    Per second of the server's own processor time: on a busy machine the time of the
    clock tells more about the others.
    """
    execute(DROP_SUSPECTS)
    if has_index:
        execute(CREATE_SUSPECTS)
    with own_connection() as db:
        assert db.own is not None
        before = read_processor_time(db.own.info.backend_pid)
        drain_full_queue(db)
        return JOBS / (read_processor_time(db.own.info.backend_pid) - before)


def read_processor_time(pid: int) -> float:
    """Return the seconds a process of this Linux machine has worked."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def claim_last_suspects(*, has_index: bool) -> float:
    """0007: claims a second of the ten suspects behind all other jobs."""
    execute(DROP_SUSPECTS)
    execute("TRUNCATE jobqueue_job, jobqueue_attempt")
    fill(JOBS)
    execute("""
        UPDATE jobqueue_job SET isolate = true
        WHERE id IN (SELECT id FROM jobqueue_job ORDER BY rank DESC, id DESC LIMIT 10)
    """)
    if has_index:
        execute(CREATE_SUSPECTS)
    execute("VACUUM ANALYZE jobqueue_job")
    with own_connection() as db:
        started = time.perf_counter()
        for _ in range(10):
            claims = claim_jobs(
                db, {"default": 1}, worker_id=uuid4(), suspects=Suspects.ONLY
            )
            assert len(claims) == 1
        return 10 / (time.perf_counter() - started)


def measure(title: str, ways: dict[str, Callable[[], float]]) -> None:
    if not title.startswith(DECISION):
        return
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            rates[name].append(way())
    print(f"\n{title}: {JOBS:,} jobs, median of {ROUNDS}")
    for name, found in rates.items():
        spread = f"{min(found):,.0f} to {max(found):,.0f}"
        print(f"  {name:34} {statistics.median(found):>8,.0f}/s  ({spread})")


def on_own(way: Callable[[Database], float], *, without: set[str]) -> float:
    with own_connection(without=without) as db:
        return way(db)


def on_django(*, is_portable: bool) -> float:
    return drain_full_queue(Database(alias="default", is_portable=is_portable))


measure(
    "0001, hand-written and portable",
    {
        "hand-written, own connection": lambda: on_own(drain_full_queue, without=set()),
        "hand-written, Django's connection": lambda: on_django(is_portable=False),
        "portable, Django's connection": lambda: on_django(is_portable=True),
    },
)
measure(
    "0002, planner settings after a quiet time",
    {
        "all of them": lambda: on_own(drain_after_quiet_time, without=set()),
        "generic plans only": lambda: on_own(
            drain_after_quiet_time, without=JOIN_METHODS
        ),
        "none of them": lambda: on_own(drain_after_quiet_time, without=PLANNING),
    },
)
measure(
    "0007, drain in a second of processor time, beside the index of suspects",
    {
        "with it": lambda: drain_beside_index(has_index=True),
        "without it": lambda: drain_beside_index(has_index=False),
    },
)
measure(
    "0007, claims of the last suspects behind all others",
    {
        "with it": lambda: claim_last_suspects(has_index=True),
        "without it": lambda: claim_last_suspects(has_index=False),
    },
)
