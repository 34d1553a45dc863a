"""Measures of latency, and of an idle worker."""

from __future__ import annotations

import statistics
import time

from benchmarks.driver import System
from benchmarks.measures.draining import pinned_xmin
from benchmarks.measures.measure import Numbers, Scale
from benchmarks.workers import Failed


def latency(system: System, scale: Scale) -> Numbers:
    """Send single jobs to an idle worker, at intervals unrelated to its polling."""
    system.call("clear")
    with system.workers(handler="stamp") as workers:
        system.call("enqueue_stamped")
        workers.wait_for_calls(1, seconds=60)
        time.sleep(1)
        for number in range(scale.latencies):
            system.call("enqueue_stamped")
            workers.wait_for_calls(number + 2, seconds=30)
            # Spread over a second: polling workers must not be met at one phase only.
            time.sleep(0.05 + number * 0.618 % 1)
        delays = sorted(1000 * delay for delay in workers.delays()[1:])
    return {
        "p50 ms": statistics.median(delays),
        "p99 ms": delays[min(len(delays) - 1, int(len(delays) * 0.99))],
        "max ms": delays[-1],
    }


def idle(system: System, scale: Scale) -> Numbers:
    """Leave a worker idle, and count its statements, writes and processor time."""
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
