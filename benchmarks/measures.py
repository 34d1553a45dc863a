"""What is measured: one function for each measure, one call for one system and round.

A measure returns numbers by name ("jobs/s", "p50 ms", …). The first name is the one
that ratios and plots are made of. Whatever a measure needs beforehand it does itself,
so that every call stands alone and systems can take turns.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import psycopg

from benchmarks.catalog import LIMIT, OURS, PEERS, Peer
from benchmarks.driver import Drain, Failed, System, watch_drain
from benchmarks.processes import memory_megabytes
from benchmarks.system import Unsupported
from tests.venvs import ROOT

Numbers = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of everything a run does."""

    jobs: int = 20_000
    seconds: float = 30.0
    rounds: int = 3
    history: int = 500_000
    backlog: int = 1_000_000
    pinned: int = 300_000
    memory: int = 100_000
    latencies: int = 50
    idle_seconds: float = 20.0
    # Seconds after which a measure gets no second or third round.
    budget: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One thing to measure, for the systems that it makes sense for."""

    name: str
    title: str
    text: str
    run: Callable[[System, Scale], Numbers]
    systems: Callable[[Peer], bool]
    # Roughly what one call takes, for the first estimate of what is left.
    seconds: float
    more_is_better: bool = True


def count_for(peer: Peer, scale: Scale, *, most: int = 0) -> int:
    """Return how many jobs keep a system busy for about a third of the limit."""
    by_rate = int(peer.rate * scale.seconds / 3)
    return max(200, min(most or scale.jobs, by_rate))


def drain(
    system: System,
    scale: Scale,
    *,
    count: int,
    handler: str = "nothing",
    processes: int = 1,
    concurrency: int | None = None,
    clear: bool = True,
    **environment: str,
) -> Drain:
    """Fill a queue, start workers and watch them empty it."""
    if clear:
        system.call("clear")
    system.call("enqueue", handler=handler, count=count)
    system.tidy()
    with system.workers(
        processes=processes, concurrency=concurrency, handler=handler, **environment
    ) as workers:
        return watch_drain(
            system, workers, count=count, processes=processes, seconds=scale.seconds
        )


def as_numbers(result: Drain) -> Numbers:
    return {"jobs/s": result.rate, "jobs": result.calls}


# --- throughput


def drain_one(system: System, scale: Scale) -> Numbers:
    return as_numbers(drain(system, scale, count=count_for(system.peer, scale)))


def drain_two(system: System, scale: Scale) -> Numbers:
    count = count_for(system.peer, scale)
    return as_numbers(drain(system, scale, count=count, processes=2))


def drain_sleeping(system: System, scale: Scale) -> Numbers:
    count = min(scale.jobs, int(scale.seconds * 1500))
    result = drain(system, scale, count=count, handler="sleep", concurrency=50)
    return as_numbers(result)


def drain_coroutines(system: System, scale: Scale) -> Numbers:
    count = count_for(system.peer, scale)
    result = drain(system, scale, count=count, handler="asleep", concurrency=500)
    return as_numbers(result)


def drain_writing(system: System, scale: Scale) -> Numbers:
    count = min(count_for(system.peer, scale), 5_000)
    return as_numbers(drain(system, scale, count=count, handler="write"))


def drain_burning(system: System, scale: Scale) -> Numbers:
    cores = os.cpu_count() or 1
    count = min(int(200 * cores * scale.seconds / 3), scale.jobs)
    result = drain(system, scale, count=count, handler="burn", processes=cores)
    return as_numbers(result)


# --- as the work grows


def drain_with_history(system: System, scale: Scale) -> Numbers:
    """Drain among finished and future jobs; the ratio is to the same without them."""
    count = count_for(system.peer, scale)
    empty = drain(system, scale, count=count)
    system.call("clear")
    system.call("fill", finished=scale.history, future=scale.history)
    full = drain(system, scale, count=count, clear=False)
    return {**as_numbers(full), "of empty": full.rate / empty.rate}


def drain_beside_others(system: System, scale: Scale) -> Numbers:
    count = count_for(system.peer, scale)
    empty = drain(system, scale, count=count)
    system.call("clear")
    system.call("fill_others", pending=scale.backlog)
    full = drain(system, scale, count=count, clear=False, JOBQUEUE_QUEUES="default")
    return {**as_numbers(full), "of empty": full.rate / empty.rate}


def drain_backlog(system: System, scale: Scale) -> Numbers:
    result = drain(system, _patient(scale), count=scale.backlog)
    return {**as_numbers(result), **_tenths(result)}


def drain_pinned(system: System, scale: Scale) -> Numbers:
    """Drain while somebody's transaction keeps dead rows from being removed."""
    count = count_for(system.peer, _patient(scale), most=scale.pinned)
    free = drain(system, _patient(scale), count=count)
    with pinned_xmin(system):
        pinned = drain(system, _patient(scale), count=count)
    return {
        **as_numbers(pinned),
        **_tenths(pinned),
        "of unpinned": pinned.rate / free.rate,
    }


@contextlib.contextmanager
def pinned_xmin(system: System) -> Iterator[None]:
    """Hold a snapshot of the system's database open."""
    if system.peer.store != "postgresql":
        raise Unsupported("not kept in PostgreSQL")
    with psycopg.connect(system.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT txid_current()")
        yield
        connection.rollback()


def _patient(scale: Scale) -> Scale:
    return replace(scale, seconds=scale.seconds * 4)


def _tenths(result: Drain) -> Numbers:
    first, last = result.tenth(1), result.tenth(10)
    return {"first tenth": first, "last tenth": last, "last of first": last / first}


# --- enqueue


def enqueue_each(system: System, scale: Scale) -> Numbers:
    return _enqueue(system, "enqueue_each", count=scale.jobs // 20)


def enqueue_together(system: System, scale: Scale) -> Numbers:
    return _enqueue(system, "enqueue_together", count=scale.jobs // 4)


def enqueue_bulk(system: System, scale: Scale) -> Numbers:
    return _enqueue(system, "enqueue_bulk", count=scale.jobs)


def _enqueue(system: System, method: str, *, count: int) -> Numbers:
    system.call("clear")
    system.tidy()
    seconds = system.call(method, handler="nothing", count=count)
    system.call("clear")
    return {"jobs/s": count / seconds, "jobs": count}


# --- an idle worker


def latency(system: System, scale: Scale) -> Numbers:
    """Send single jobs to an idle worker, at intervals that fit no poll interval."""
    system.call("clear")
    with system.workers(handler="stamp") as workers:
        system.call("enqueue_stamped")
        workers.wait_for_calls(1, seconds=60)
        time.sleep(1)
        for number in range(scale.latencies):
            system.call("enqueue_stamped")
            workers.wait_for_calls(number + 2, seconds=30)
            # Over all of a second, so that whoever polls is not met at one phase of it.
            time.sleep(0.05 + number * 0.618 % 1)
        delays = sorted(1000 * delay for delay in workers.delays()[1:])
    return {
        "p50 ms": statistics.median(delays),
        "p99 ms": delays[min(len(delays) - 1, int(len(delays) * 0.99))],
        "max ms": delays[-1],
    }


def idle(system: System, scale: Scale) -> Numbers:
    """Let a worker wait for nothing, and count what it does meanwhile."""
    system.call("clear")
    with system.workers() as workers:
        system.call("enqueue_stamped")
        workers.wait_for_calls(1, seconds=60)
        time.sleep(3)
        before, processor = system.count_queries(), workers.processor_seconds()
        started = time.monotonic()
        time.sleep(scale.idle_seconds)
        took = time.monotonic() - started
        used = workers.processor_seconds() - processor
        # The statistics of a session appear up to a second late.
        time.sleep(1)
        after = system.count_queries()
    return {
        "queries/s": (after[0] - before[0]) / (took + 1),
        "rows written/s": (after[1] - before[1]) / (took + 1),
        "CPU %": 100 * used / took,
    }


def memory(system: System, scale: Scale) -> Numbers:
    count = count_for(system.peer, _patient(scale), most=scale.memory)
    result = drain(system, _patient(scale), count=count)
    early, late = result.memory
    numbers = {"MB": late, "MB after a tenth": early, "growth MB": late - early}
    if system.peer.name == OURS:
        numbers["beyond Django MB"] = late - _weigh_django(system)
    return numbers


WEIGH = """
import django
django.setup()
from django.db import connection
connection.ensure_connection()
print(flush=True)
input()
"""


def _weigh_django(system: System) -> float:
    """Return the memory of a process that has set Django up and asked its database."""
    with subprocess.Popen(
        [sys.executable, "-c", WEIGH],
        env=_environment(system),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        process.stdout.readline()
        found = memory_megabytes([process.pid])
        process.communicate("\n")
    return found


def urgent(system: System, scale: Scale) -> Numbers:
    """Send urgent jobs to a busy worker while a snapshot keeps dead rows in place."""
    system.call("clear")
    system.call("enqueue", handler="nothing", count=scale.pinned)
    system.tidy()
    with pinned_xmin(system), system.workers() as workers:
        workers.wait_for_calls(scale.pinned // 3, seconds=scale.seconds * 4)
        for _ in range(20):
            system.call("enqueue_urgent")
            time.sleep(0.1)
        time.sleep(1)
        delays = sorted(1000 * delay for delay in workers.delays())
        left = scale.pinned + 20 - workers.sample().calls
    if len(delays) < 20:
        raise Failed(f"{len(delays)} of 20 urgent jobs started")
    return {
        "p50 ms": statistics.median(delays),
        "p90 ms": delays[int(len(delays) * 0.9)],
        "max ms": delays[-1],
        "jobs left": left,
    }


def first_job(system: System, scale: Scale) -> Numbers:
    """Start a worker with one job waiting, and wait for that job."""
    system.call("clear")
    system.call("enqueue", handler="nothing", count=1)
    with system.workers() as workers:
        sample = workers.wait_for_calls(1, seconds=60)
        seconds = sample.begun[0] / 1e9 - workers.started
    numbers = {"s": seconds}
    if system.peer.name == OURS:
        shell = _best_of_three(["-m", "django", "shell", "-c", "pass"], system)
        numbers |= {"shell s": shell, "of shell": seconds / shell}
    return numbers


# What every project has: without a model, Django would not load a database backend.
BASE = ["django.contrib.contenttypes", "django.contrib.auth"]
SETUP = """
import os, time
import django.conf
from django.conf import settings
settings.configure(
    INSTALLED_APPS={apps},
    DATABASES={{"default": {{"ENGINE": "django.db.backends.postgresql"}}}},
)
import django
started = time.perf_counter()
django.setup()
print(time.perf_counter() - started)
"""


def import_time(system: System, scale: Scale) -> Numbers:
    """Compare django.setup() with our app and without; the best of three of each."""
    times: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(3):
        for name, apps in (("without", BASE), ("with", [*BASE, "django_jobqueue"])):
            code = SETUP.format(apps=apps)
            done = subprocess.check_output([sys.executable, "-c", code], text=True)
            times[name].append(1000 * float(done))
    without, with_ours = min(times["without"]), min(times["with"])
    return {"added ms": with_ours - without, "without ms": without}


def _environment(system: System) -> dict[str, str]:
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "DATABASE_URL": system.url,
        "PYTHONPATH": str(ROOT),
    }


def _best_of_three(arguments: list[str], system: System) -> float:
    times = []
    for _ in range(3):
        started = time.monotonic()
        command = [sys.executable, *arguments]
        subprocess.run(
            command,
            env=_environment(system),
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        times.append(time.monotonic() - started)
    return min(times)


# --- which system takes part in what


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
        run=drain_one,
        systems=main_systems,
        seconds=25,
    ),
    Measure(
        name="drain-two",
        title="Drain of no-op jobs, two processes",
        text="The same with two processes, counted from when both take part.",
        run=drain_two,
        systems=main_systems,
        seconds=25,
    ),
    Measure(
        name="enqueue",
        title="Enqueue, one job per commit",
        text="One producer, one connection, a commit for each job.",
        run=enqueue_each,
        systems=single_producers,
        seconds=5,
    ),
    Measure(
        name="enqueue-together",
        title="Enqueue inside one transaction",
        text="Job after job by the call for one, all in one transaction.",
        run=enqueue_together,
        systems=single_producers,
        seconds=5,
    ),
    Measure(
        name="enqueue-bulk",
        title="Enqueue in bulk",
        text="By the call for many; ours against raw COPY into the same table.",
        run=enqueue_bulk,
        systems=bulk_systems,
        seconds=5,
    ),
    Measure(
        name="latency",
        title="Latency of an idle worker",
        text="From the call that enqueues a job to the first line of its handler.",
        run=latency,
        systems=real_workers,
        seconds=25,
        more_is_better=False,
    ),
    Measure(
        name="history",
        title="Drain among finished and future jobs",
        text="The same drain with 500,000 finished and 500,000 future jobs beside it.",
        run=drain_with_history,
        systems=kept_in_postgres,
        seconds=90,
    ),
    Measure(
        name="others",
        title="Drain beside a million pending jobs of another queue",
        text="Another queue, a higher priority, and no worker that serves them.",
        run=drain_beside_others,
        systems=only(OURS),
        seconds=60,
    ),
    Measure(
        name="backlog",
        title="Drain of a long backlog",
        text="The last tenth of the jobs against the first.",
        run=drain_backlog,
        systems=only(OURS, LIMIT, "graphile"),
        seconds=150,
    ),
    Measure(
        name="pinned",
        title="Drain under a pinned xmin",
        text="Somebody's REPEATABLE READ transaction stays open all the while.",
        run=drain_pinned,
        systems=kept_in_postgres,
        seconds=120,
    ),
    Measure(
        name="urgent",
        title="Urgent jobs under a pinned xmin",
        text="Twenty jobs of the highest priority, while a long backlog is drained.",
        run=urgent,
        systems=only(OURS),
        seconds=40,
        more_is_better=False,
    ),
    Measure(
        name="sleep",
        title="Handlers that sleep 10 ms, 50 at a time",
        text="One process. The ideal is 5,000 a second.",
        run=drain_sleeping,
        systems=real_workers,
        seconds=20,
    ),
    Measure(
        name="coroutines",
        title="Coroutines that sleep 10 ms, 500 at a time",
        text="One process, async handlers. The ideal is 50,000 a second.",
        run=drain_coroutines,
        systems=real_workers,
        seconds=20,
    ),
    Measure(
        name="write",
        title="Handlers that do one ORM write",
        text="One INSERT by Django's ORM, default concurrency, one process.",
        run=drain_writing,
        systems=real_workers,
        seconds=20,
    ),
    Measure(
        name="burn",
        title="Handlers that burn 5 ms of CPU",
        text="As many processes as there are cores.",
        run=drain_burning,
        systems=real_workers,
        seconds=20,
    ),
    Measure(
        name="idle",
        title="What an idle worker costs",
        text="Statements, rows written and processor time while nothing happens.",
        run=idle,
        systems=real_workers,
        seconds=35,
        more_is_better=False,
    ),
    Measure(
        name="memory",
        title="Memory over many jobs",
        text="All processes of one worker together, shared pages divided (PSS).",
        run=memory,
        systems=real_workers,
        seconds=40,
        more_is_better=False,
    ),
    Measure(
        name="start",
        title="From the start of a worker to its first job",
        text="Ours also against `manage.py shell -c pass`.",
        run=first_job,
        systems=real_workers,
        seconds=5,
        more_is_better=False,
    ),
    Measure(
        name="import",
        title="What our app adds to django.setup()",
        text="The best of three with the app, less the best of three without.",
        run=import_time,
        systems=only(OURS),
        seconds=5,
        more_is_better=False,
    ),
    Measure(
        name="sqlite",
        title="Drain on SQLite, one process",
        text="No-op jobs, ours against Huey.",
        run=drain_one,
        systems=on_sqlite,
        seconds=20,
    ),
    Measure(
        name="sqlite-latency",
        title="Latency of an idle worker on SQLite",
        text="Nobody can notify: about half the poll interval.",
        run=latency,
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
