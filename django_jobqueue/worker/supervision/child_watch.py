"""ChildWatch: checks each child on every step of the supervisor, and ends what hangs.

Four things may be wrong with a child: an attempt that ignores its time-out, a stop or a
start that takes too long, a part that makes no progress, and an interpreter that does
not run. Each ends with a replacement for the child.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...log_events import Event
from .child import Child
from .memory_values import RunningAttempt, Stage
from .process_pool import ProcessPool
from .supervisor_db import SupervisorDb, logger

# A child that has shown no tick for so long: a job holds the interpreter's lock.
INTERPRETER_HELD_SECONDS = 1.0
# A child that has shown no tick for so long, with no job that explains it, is stuck.
STUCK_CHILD_SECONDS = 60.0
# How long a child has to leave that cannot write the ends of its jobs or log lines.
STALLED_DRAIN_SECONDS = 10.0


class ChildWatch:
    """Compares what a child shows in its shared memory with its limits."""

    def __init__(self, pool: ProcessPool, supervisor_db: SupervisorDb) -> None:
        self._pool = pool
        self._supervisor_db = supervisor_db

    def check(self, child: Child, now: float) -> None:
        """Check one child, and act on the first thing that is wrong with it."""
        silence = child.measure_silence(now)
        overruns = child.list_overruns(now)
        if overruns:
            self._end_attempts(child, overruns, silence)
        elif child.is_overdue(now):
            self._end_overdue(child)
        elif child.is_stalled and not child.is_leaving:
            self._replace_stalled(child, now)
        elif silence > STUCK_CHILD_SECONDS and child.stage is not Stage.STARTING:
            self.end_stuck(child, now, silence)
        if child.has_seen_suspects():
            self._pool.is_isolation_wanted = True

    def _end_attempts(
        self, child: Child, overruns: Sequence[RunningAttempt], silence: float
    ) -> None:
        """End attempts that did not stop; their process is replaced."""
        for attempt in overruns:
            child.shared_memory.mark_ended_by_supervisor(attempt)
            self._supervisor_db.end_attempt(child, attempt)
        if silence > INTERPRETER_HELD_SECONDS:
            # Nothing else in that process can run or end.
            child.kill()
        elif not child.is_leaving:
            child.drain()
        self._pool.detach(child)
        for attempt in overruns:
            logger.error(
                Event(
                    "an attempt did not stop; its process is replaced",
                    job_id=attempt.id,
                    attempt=attempt.attempt,
                    worker_id=child.id,
                    pid=child.process.pid,
                )
            )

    def _end_overdue(self, child: Child) -> None:
        if child.is_killed:
            return
        child.kill()
        is_start = child.stage is Stage.STARTING
        text = "has not started in time" if is_start else "did not leave in time"
        logger.error(Event(f"a child {text} and is killed", pid=child.process.pid))

    def _replace_stalled(self, child: Child, now: float) -> None:
        """Replace a child that cannot write, claim or log."""
        stall = child.shared_memory.stall
        if stall is None:
            return
        reason = stall.describe(now, pid=child.process.pid)
        if stall.part == "logging":
            # One of its jobs may hold that lock, and would block the next child, too.
            child.blame = "it made no progress, logging was blocked"
        if stall.part in ("logging", "finish"):
            child.drain(within=STALLED_DRAIN_SECONDS)
        else:
            # Its running jobs can end, and their ends can be written.
            child.retire()
        self._pool.detach(child)
        logger.critical(
            Event("a child makes no progress and is replaced", reason=reason)
        )

    def end_stuck(self, child: Child, now: float, silence: float) -> None:
        """Kill a child whose interpreter does not run, unless a job may be the cause:
        the time-out of that job will end it."""
        silent_since = now - silence + INTERPRETER_HELD_SECONDS
        if any(
            attempt.limit > now and attempt.entered < silent_since
            for attempt in child.shared_memory.read_places()
        ):
            return
        child.kill()
        logger.critical(
            Event("a child is stuck and is replaced", pid=child.process.pid)
        )
