"""The health and the numbers of one worker, and what it does about a stalled part.

Read by its heartbeat, its supervisor and probes. See health/progress.py for the checks.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ..states import WorkerState
from ..storage.worker_rows import BeatValues
from .health import progress
from .health.progress import Health
from .health.status import WorkerStatus
from .health.watchdog import end_process, end_stuck
from .heartbeat import Heartbeat, read_memory
from .loop import Loop
from .running.pool_watch import PoolWatch
from .supervision.memory_values import Counts, Stall

if TYPE_CHECKING:
    from .worker import Worker


def make_health(worker: Worker, stall_handler: StallHandler) -> Health:
    finisher = worker.finisher
    return Health(
        [
            finisher.loop,
            worker.claimer.loop,
            *worker.slots.list_parts(),
            PoolWatch(worker.in_flight),
        ],
        interval=worker.options.heartbeat_interval.total_seconds(),
        read_confirmed=lambda: worker.heartbeat.confirmed,
        on_check=stall_handler.on_check,
        counters={finisher.loop: lambda: finisher.processed},
    )


class StallHandler:
    """Decides whether a process with a stalled part goes on."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        # A stuck loop that is no reason to end the process while jobs run.
        self._stuck: Stall | None = None

    def on_check(self, stall: Stall | None) -> None:
        """Pass the result of a health check on; without a supervisor, end the process
        if the stall lasts."""
        if self._worker.shared_memory is not None:
            # The supervisor decides.
            self._worker.shared_memory.publish_stall(stall or self._stuck)
        elif stall is not None and stall.is_curable:
            now = time.monotonic()
            if now - stall.since > progress.END_PROCESS_SECONDS:
                end_process(stall.describe(now, pid=os.getpid()))

    def on_stuck(self, loop: Loop) -> None:
        """End the process, unless only maintenance is stuck and jobs run."""
        worker = self._worker
        if loop is worker.maintenance.loop and worker.slots.running:
            # Running jobs do not need maintenance and may end first. Probes report the
            # stall, and a supervisor replaces this process.
            since = loop.stalled_since
            self._stuck = Stall(part=loop.name, since=since, is_curable=True)
            return
        if worker.shared_memory is not None:
            # The running jobs are not to blame.
            worker.shared_memory.mark_ended()
        end_stuck(loop)


def read_worker_status(worker: Worker) -> WorkerStatus:
    """Return the status for probes, of a worker without a supervisor."""
    now = time.monotonic()
    heartbeat = worker.heartbeat
    confirmed = heartbeat.confirmed if isinstance(heartbeat, Heartbeat) else 0.0
    stall = worker.health.stall
    return WorkerStatus(
        is_ready=worker.is_started and not worker.is_stopping,
        is_stopping=worker.is_stopping,
        is_restarting=worker.is_to_restart,
        confirmed=confirmed,
        stuck=tuple(loop.name for loop in worker.list_loops() if loop.is_stuck(now)),
        stalled=() if stall is None else (stall.describe(now, pid=os.getpid()),),
        processes=1,
        running=worker.slots.running,
        processed=worker.finisher.processed,
    )


def read_beat_values(worker: Worker) -> BeatValues:
    """Return what the worker's own heartbeat writes into its row."""
    return BeatValues(
        state=WorkerState.STOPPING if worker.is_stopping else WorkerState.RUNNING,
        processed=worker.finisher.processed,
        failed=worker.finisher.failed,
        running=worker.slots.running,
        memory=read_memory(),
    )


def read_counts(worker: Worker, ticks: int) -> Counts:
    """Return what a child shows to its supervisor."""
    return Counts(
        ticks=ticks,
        processed=worker.finisher.processed,
        failed=worker.finisher.failed,
        running=worker.slots.running,
    )
