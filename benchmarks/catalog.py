"""Every system that can be measured: its packages and its settings.

`settings` is printed beside the numbers: the best that the system's documentation
advises, at its default durability. `rate` is roughly the number of no-op jobs it
drains in a second; it sets how many jobs a round enqueues and does not affect results.
"""

from __future__ import annotations

from dataclasses import dataclass

OURS = "jobqueue"
LIMIT = "bare"

DJANGO = ("Django>=6.0", "psycopg[binary,pool]>=3.2")
ORM = "Django>=6.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One system; `module` is its adapter; an empty `venv` is our own environment."""

    name: str
    label: str
    settings: str
    rate: int
    store: str = "postgresql"
    module: str = ""
    venv: str = ""
    requires: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    # Left out unless a measure names it.
    is_extra: bool = False

    @property
    def adapter(self) -> str:
        return self.module or self.name


PEERS = (
    Peer(
        name=OURS,
        label="django-jobqueue",
        settings="runworker, default settings, history kept",
        rate=20_000,
    ),
    Peer(
        name=LIMIT,
        label="bare psycopg loop",
        settings="claims of 200 by UPDATE … SKIP LOCKED; no retries, heartbeat, fence",
        rate=20_000,
    ),
    Peer(
        name="jobqueue_unkept",
        module="jobqueue",
        label="django-jobqueue, RETENTION 0",
        settings='runworker, RETENTION = {"succeeded": 0}: finished jobs deleted',
        rate=20_000,
        environment=(("JOBQUEUE_RETENTION", '{"succeeded": 0}'),),
    ),
    Peer(
        name="jobqueue_prepared",
        module="jobqueue",
        label="django-jobqueue, statements prepared",
        settings="OPTIONS: server_side_binding, prepare_threshold 5",
        rate=20_000,
        environment=(("BENCH_PREPARED", "5"),),
        is_extra=True,
    ),
    Peer(
        name="insert_rows",
        module="raw_rows",
        label="raw INSERT into our table",
        settings="psycopg alone, INSERT of the same row, prepared",
        rate=20_000,
        is_extra=True,
    ),
    Peer(
        name="copy_rows",
        module="raw_rows",
        label="raw COPY into our table",
        settings="COPY of the same rows",
        rate=20_000,
        is_extra=True,
    ),
    Peer(
        name="pgqueuer",
        label="PgQueuer",
        settings="asyncpg, uvloop, batch_size 100, autovacuum as advised",
        rate=8_000,
        venv="pgqueuer",
        requires=("pgqueuer[asyncpg]", "uvloop", ORM, "psycopg[binary]"),
    ),
    Peer(
        name="graphile",
        label="Graphile Worker (Node)",
        settings="localQueue 500, concurrency 24, batched completion; no history",
        rate=15_000,
        node=("graphile-worker", "pg"),
    ),
    Peer(
        name="oban",
        label="Oban for Python",
        settings="oban start, queue limit 100, pool 10",
        rate=1_500,
        venv="oban",
        requires=("oban", ORM),
    ),
    Peer(
        name="procrastinate",
        label="Procrastinate",
        settings="PsycopgConnector, concurrency 30, listen_notify",
        rate=400,
        venv="procrastinate",
        requires=("procrastinate", "psycopg[binary,pool]", ORM),
    ),
    Peer(
        name="dj_queue",
        label="dj-queue",
        settings="threads 3, prefetch 2, SKIP LOCKED, LISTEN, CONN_MAX_AGE 600",
        rate=800,
        venv="dj_queue",
        requires=("dj-queue", *DJANGO),
    ),
    Peer(
        name="django_ox",
        label="django-ox",
        settings="concurrency 4, CONN_MAX_AGE 600",
        rate=400,
        venv="django_ox",
        requires=("django-ox", *DJANGO),
    ),
    Peer(
        name="django_tasks_db",
        label="django-tasks-db",
        settings="db_worker, interval 1 s, CONN_MAX_AGE 600",
        rate=200,
        venv="django_tasks_db",
        requires=("django-tasks-db", *DJANGO),
    ),
    Peer(
        name="django_q2",
        label="Django-Q2",
        settings="ORM broker, bulk 100, poll 0.2 s, all successes kept",
        rate=500,
        venv="django_q2",
        requires=("django-q2", *DJANGO),
    ),
    Peer(
        name="celery",
        label="Celery + redis",
        settings="prefork, prefetch 128, results ignored, no gossip, no mingle",
        rate=800,
        store="redis",
        venv="celery",
        requires=("celery[redis]", "hiredis", *DJANGO),
    ),
    Peer(
        name="dramatiq",
        label="Dramatiq + redis",
        settings="8 threads, no results",
        rate=2_000,
        store="redis",
        venv="dramatiq",
        requires=("dramatiq[redis]", "hiredis", *DJANGO),
    ),
    Peer(
        name="huey",
        label="Huey + redis",
        settings="8 threads, blocking pop, no results, no scheduler delay",
        rate=2_000,
        store="redis",
        venv="huey",
        requires=("huey", "redis", "hiredis", *DJANGO),
    ),
    Peer(
        name="bullmq",
        label="BullMQ + redis (Node)",
        settings="concurrency 100, removeOnComplete",
        rate=8_000,
        store="redis",
        node=("bullmq", "ioredis"),
    ),
    Peer(
        name="jobqueue_sqlite",
        module="jobqueue",
        label="django-jobqueue on SQLite",
        settings="runworker, default settings, history kept",
        rate=1_500,
        store="sqlite",
    ),
    Peer(
        name="huey_sqlite",
        module="huey",
        label="Huey on SQLite",
        settings="SqliteHuey, 1 thread, no results",
        rate=1_500,
        store="sqlite",
        venv="huey",
        requires=("huey", "redis", "hiredis", *DJANGO),
    ),
)
BY_NAME = {peer.name: peer for peer in PEERS}
