"""Drain: the curve of a queue that workers empty, sampled while they run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import record
from benchmarks.driver import System
from benchmarks.workers import Workers

# (moment in seconds, jobs run by then)
Curve = Sequence[tuple[float, int]]

POLL_SECONDS = 0.02
CLOSE_POLL_SECONDS = 0.005
STALL_SECONDS = 0.5
# Poll at the shorter interval when this few calls are left.
LAST_CALLS = 64


@dataclass(frozen=True, slots=True)
class Drain:
    """How a queue was drained: a curve of (seconds, jobs run)."""

    curve: Curve
    begun: float
    ended: float
    is_complete: bool
    memory: tuple[float, float]

    @property
    def calls(self) -> int:
        return self.curve[-1][1]

    @property
    def rate(self) -> float:
        """Return jobs a second, from when every process took part to the last job."""
        done = self.calls - calls_at(self.curve, self.begun)
        return done / max(self.ended - self.begun, 1e-9)

    def tenth(self, number: int) -> float:
        """Return jobs a second within the first (1) … last (10) tenth of the jobs."""
        low = self.calls * (number - 1) // 10
        high = self.calls * number // 10
        took = moment_of(self.curve, high) - moment_of(self.curve, low)
        return (high - low) / max(took, 1e-9)


def calls_at(curve: Curve, moment: float) -> float:
    """Return how many jobs had run at a moment, interpolated between two samples."""
    return _interpolate(curve, moment)


def moment_of(curve: Curve, calls: float) -> float:
    """Return when `calls` jobs had run, interpolated between two samples."""
    return _interpolate([(run, moment) for moment, run in curve], calls)


def _interpolate(points: Sequence[tuple[float, float]], x: float) -> float:
    before = points[0]
    for point in points:
        if point[0] >= x:
            span = point[0] - before[0]
            share = (x - before[0]) / span if span else 1.0
            return before[1] + (point[1] - before[1]) * share
        before = point
    return points[-1][1]


def watch_drain(
    system: System, workers: Workers, *, count: int, processes: int, seconds: float
) -> Drain:
    """Sample a drain for at most `seconds` after the first job.

    While jobs run, only counters in shared memory are read. When all have run, or the
    count stalls, the system itself is asked whether the work is finished: some systems
    forget a job when it starts, and racing threads may miss a count.
    """
    first = workers.wait_for_calls(1, seconds=60 + seconds)
    start = first.begun[0] / 1e9
    curve: list[tuple[float, int]] = [(start, 0)]
    early = 0.0
    changed = time.monotonic()
    is_complete = False
    while True:
        sample = workers.sample()
        now = sample.moment / 1e9
        if sample.calls != curve[-1][1]:
            changed = now
        curve.append((now, sample.calls))
        if not early and sample.calls >= count // 10:
            early = workers.memory()
        is_late = now - start > seconds
        is_still = now - changed > STALL_SECONDS
        is_near = sample.calls >= count - LAST_CALLS or is_still
        if (sample.calls >= count or is_still) and not system.call("has_work"):
            is_complete = True
        if is_complete or is_late:
            break
        workers.check()
        time.sleep(CLOSE_POLL_SECONDS if is_near else POLL_SECONDS)
    sample = workers.sample()
    ended = time.monotonic()
    if is_complete and is_still:
        # The drain ended before the first question to the system.
        ended = changed
    curve.append((max(ended, curve[-1][0]), sample.calls))
    begun = _when_all_take_part(sample, curve, processes)
    memory = (early, workers.memory())
    return Drain(tuple(curve), begun, ended, is_complete, memory)


def _when_all_take_part(sample: record.Sample, curve: Curve, processes: int) -> float:
    """Return when the last process began, unless half of the jobs had run by then."""
    last = sample.begun[: max(processes, 1)][-1] / 1e9
    if calls_at(curve, last) > sample.calls / 2:
        return curve[0][0]
    return last
