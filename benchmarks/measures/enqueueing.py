"""Measures of enqueue: one commit per job, one transaction, one bulk call."""

from __future__ import annotations

from benchmarks.driver import System
from benchmarks.measures.measure import Numbers, Scale


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
