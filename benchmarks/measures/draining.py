"""Measures of throughput: how fast workers empty a full queue."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import psycopg

from benchmarks.drains import Drain, watch_drain
from benchmarks.driver import System
from benchmarks.measures.measure import Numbers, Scale, count_for, patient
from benchmarks.system import Unsupported


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


def drain_with_history(system: System, scale: Scale) -> Numbers:
    """Drain among finished and future jobs; the ratio is to a drain without them."""
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
    result = drain(system, patient(scale), count=scale.backlog)
    return {**as_numbers(result), **_tenths(result)}


def drain_pinned(system: System, scale: Scale) -> Numbers:
    """Drain while an open transaction keeps dead rows from being removed."""
    count = count_for(system.peer, patient(scale), most=scale.pinned)
    free = drain(system, patient(scale), count=count)
    with pinned_xmin(system):
        pinned = drain(system, patient(scale), count=count)
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


def _tenths(result: Drain) -> Numbers:
    first, last = result.tenth(1), result.tenth(10)
    return {"first tenth": first, "last tenth": last, "last of first": last / first}
