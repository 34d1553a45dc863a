"""The measures: one function each; one call measures one system for one round.

A measure returns numbers by name ("jobs/s", "p50 ms", …). Ratios and plots use the
first name. Each measure does its own preparation: calls are independent, and systems
can take turns. This file lists them with the systems that take part.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.catalog import LIMIT, OURS, PEERS, Peer
from benchmarks.measures import draining, enqueueing, footprint, waiting
from benchmarks.measures.measure import Measure


def main_systems(peer: Peer) -> bool:
    return peer.store != "sqlite" and not peer.is_extra


def kept_in_postgres(peer: Peer) -> bool:
    return peer.store == "postgresql" and not peer.is_extra


def bulk_systems(peer: Peer) -> bool:
    return producers(peer) or peer.name == "copy_rows"


def producers(peer: Peer) -> bool:
    return main_systems(peer) and peer.name != "jobqueue_unkept"


def single_producers(peer: Peer) -> bool:
    return producers(peer) or peer.name in ("jobqueue_prepared", "insert_rows")


def real_workers(peer: Peer) -> bool:
    return producers(peer) and peer.name != LIMIT


def only(*names: str) -> Callable[[Peer], bool]:
    return lambda peer: peer.name in names


def on_sqlite(peer: Peer) -> bool:
    return peer.store == "sqlite"


MEASURES = (
    Measure(
        name="drain",
        title="Drain of no-op jobs, one process",
        text="A full queue of jobs that do nothing, emptied by one process.",
        run=draining.drain_one,
        systems=main_systems,
        seconds=25,
    ),
    Measure(
        name="drain-two",
        title="Drain of no-op jobs, two processes",
        text="The same with two processes, counted from when both take part.",
        run=draining.drain_two,
        systems=main_systems,
        seconds=25,
    ),
    Measure(
        name="enqueue",
        title="Enqueue, one job per commit",
        text="One producer, one connection, a commit for each job.",
        run=enqueueing.enqueue_each,
        systems=single_producers,
        seconds=5,
    ),
    Measure(
        name="enqueue-together",
        title="Enqueue inside one transaction",
        text="Job after job by the call for one, all in one transaction.",
        run=enqueueing.enqueue_together,
        systems=single_producers,
        seconds=5,
    ),
    Measure(
        name="enqueue-bulk",
        title="Enqueue in bulk",
        text="By the call for many; ours against raw COPY into the same table.",
        run=enqueueing.enqueue_bulk,
        systems=bulk_systems,
        seconds=5,
    ),
    Measure(
        name="latency",
        title="Latency of an idle worker",
        text="From the call that enqueues a job to the first line of its handler.",
        run=waiting.latency,
        systems=real_workers,
        seconds=25,
        more_is_better=False,
    ),
    Measure(
        name="history",
        title="Drain among finished and future jobs",
        text="The same drain with 500,000 finished and 500,000 future jobs beside it.",
        run=draining.drain_with_history,
        systems=kept_in_postgres,
        seconds=90,
    ),
    Measure(
        name="others",
        title="Drain beside a million pending jobs of another queue",
        text="Another queue, a higher priority, and no worker that serves them.",
        run=draining.drain_beside_others,
        systems=only(OURS),
        seconds=60,
    ),
    Measure(
        name="backlog",
        title="Drain of a long backlog",
        text="The last tenth of the jobs against the first.",
        run=draining.drain_backlog,
        systems=only(OURS, LIMIT, "graphile"),
        seconds=150,
    ),
    Measure(
        name="pinned",
        title="Drain under a pinned xmin",
        text="Another REPEATABLE READ transaction stays open during the drain.",
        run=draining.drain_pinned,
        systems=kept_in_postgres,
        seconds=120,
    ),
    Measure(
        name="urgent",
        title="Urgent jobs under a pinned xmin",
        text="Twenty jobs of the highest priority, while a long backlog is drained.",
        run=waiting.urgent,
        systems=only(OURS),
        seconds=40,
        more_is_better=False,
    ),
    Measure(
        name="sleep",
        title="Handlers that sleep 10 ms, 50 at a time",
        text="One process. The ideal is 5,000 a second.",
        run=draining.drain_sleeping,
        systems=real_workers,
        seconds=20,
    ),
    Measure(
        name="coroutines",
        title="Coroutines that sleep 10 ms, 500 at a time",
        text="One process, async handlers. The ideal is 50,000 a second.",
        run=draining.drain_coroutines,
        systems=real_workers,
        seconds=20,
    ),
    Measure(
        name="write",
        title="Handlers that do one ORM write",
        text="One INSERT by Django's ORM, default concurrency, one process.",
        run=draining.drain_writing,
        systems=real_workers,
        seconds=20,
    ),
    Measure(
        name="burn",
        title="Handlers that burn 5 ms of CPU",
        text="As many processes as there are cores.",
        run=draining.drain_burning,
        systems=real_workers,
        seconds=20,
    ),
    Measure(
        name="idle",
        title="What an idle worker costs",
        text="Statements, rows written and processor time while nothing happens.",
        run=waiting.idle,
        systems=real_workers,
        seconds=35,
        more_is_better=False,
    ),
    Measure(
        name="memory",
        title="Memory over many jobs",
        text="All processes of one worker together, shared pages divided (PSS).",
        run=footprint.memory,
        systems=real_workers,
        seconds=40,
        more_is_better=False,
    ),
    Measure(
        name="start",
        title="From the start of a worker to its first job",
        text="Ours also against `manage.py shell -c pass`.",
        run=footprint.first_job,
        systems=real_workers,
        seconds=5,
        more_is_better=False,
    ),
    Measure(
        name="import",
        title="What our app adds to django.setup()",
        text="The best of three with the app, less the best of three without.",
        run=footprint.import_time,
        systems=only(OURS),
        seconds=5,
        more_is_better=False,
    ),
    Measure(
        name="sqlite",
        title="Drain on SQLite, one process",
        text="No-op jobs, ours against Huey.",
        run=draining.drain_one,
        systems=on_sqlite,
        seconds=20,
    ),
    Measure(
        name="sqlite-latency",
        title="Latency of an idle worker on SQLite",
        text="Without notifications: about half the poll interval.",
        run=waiting.latency,
        systems=on_sqlite,
        seconds=90,
        more_is_better=False,
    ),
)
BY_NAME = {measure.name: measure for measure in MEASURES}
QUICK = ("drain", "drain-two", "enqueue", "enqueue-bulk", "latency", "import", "start")
QUICK_SYSTEMS = (OURS, LIMIT, "copy_rows")


def peers_of(measure: Measure) -> list[Peer]:
    return [peer for peer in PEERS if measure.systems(peer)]
