"""What a supervisor reports about its children to probes and to systemd."""

from __future__ import annotations

from ..health.status import WorkerStatus
from .memory_values import Stage
from .process_pool import ProcessPool

# A child that has shown no tick for so long takes no jobs.
UNREADY_SECONDS = 5.0


def read_pool_status(
    pool: ProcessPool,
    now: float,
    *,
    is_stopping: bool,
    is_restarting: bool,
    confirmed: float,
    stuck: tuple[str, ...],
    processed: int,
) -> WorkerStatus:
    """Return the status at this (monotonic) moment.

    `stuck`: the supervisor's own threads that hang; `processed`: jobs of children that
    have ended.
    """
    children = pool.list_children()
    # The process for suspects takes none of the other jobs.
    ready = [
        child
        for child in pool.list_active()
        if child.stage is Stage.READY and not child.is_isolated
    ]
    silent = [
        (child, silence)
        for child in ready
        if (silence := child.measure_silence(now)) > UNREADY_SECONDS
    ]
    counts = [child.shared_memory.counts for child in children]
    return WorkerStatus(
        is_ready=len(ready) > len(silent) and not is_stopping,
        is_stopping=is_stopping,
        is_restarting=is_restarting,
        confirmed=confirmed,
        silent=tuple(
            f"process {child.process.pid} has not run for {silence:.0f} s: "
            f"stopped, or a job holds the interpreter"
            for child, silence in silent
        ),
        stuck=stuck,
        stalled=tuple(
            stall.describe(now, pid=child.process.pid)
            for child in children
            if (stall := child.shared_memory.stall) is not None
        ),
        processes=len(children),
        running=sum(each.running for each in counts),
        processed=processed + sum(each.processed for each in counts),
    )
