"""The values that a supervisor and a child exchange through the shared memory.

SharedMemory writes and reads them; memory_layout says where each of them is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

# The part of a Stall whose log lines cannot be written.
BROKEN_LOG = "log output"
# The names of stalled parts that are not loops.
_SUBJECTS = {
    "logging": "logging",
    "pool": "Django's connection pool",
    "executor": "an executor of async code",
    "threads": "the start of threads",
}


class Stage(IntEnum):
    """How far a child is."""

    STARTING = 0
    READY = 1
    DRAINING = 2
    # --burst or --once has no job left.
    DRAINED = 3


class InterruptReason(IntEnum):
    """Why an attempt is asked to stop."""

    TIMEOUT = 0
    CANCELLED = 1
    # Code of the project before or after the handler takes too long.
    OUTSIDE = 2
    # Its thread is tidied before the handler is called: no code of this job has run.
    TIDYING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the child reports about itself, several times a second."""

    ticks: int = 0
    processed: int = 0
    failed: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A part of a worker that makes no progress although the database answers."""

    # A key of _SUBJECTS, BROKEN_LOG, or the name of a loop.
    part: str
    # Monotonic: since when.
    since: float
    # Whether a new process may do better. False where the database itself refuses.
    is_curable: bool

    def describe(self, now: float, *, pid: int) -> str:
        if self.part == BROKEN_LOG:
            return f"logging of process {pid} is broken for {now - self.since:.0f} s"
        subject = _SUBJECTS.get(self.part, f"the {self.part} loop")
        return (
            f"{subject} of process {pid} has made no progress for "
            f"{now - self.since:.0f} s"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAttempt:
    """An attempt that has a place: inside its handler, or before or after it."""

    place: int
    sequence: int
    id: UUID
    lease_token: int
    attempt: int
    max_attempts: int
    # Monotonic: since when, and when the supervisor ends it.
    entered: float
    limit: float
    cause: InterruptReason
    # Seconds until the next attempt; None if the child could not compute them.
    delay: float | None
    # Database backends that work for it.
    pids: tuple[int, ...]
    is_ended_by_supervisor: bool
