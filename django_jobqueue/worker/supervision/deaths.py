"""Deaths: how the end of a child's process is judged and reported.

Called by the supervisor when a child has exited. A death charges the attempts that were
inside a handler, unless the supervisor itself ended the process or the child announced
its end. SupervisorDb writes the result.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass
from uuid import UUID

from ...log_events import Event
from ..health.log_queue import LogQueue
from .child import Child, describe_exit
from .memory_values import RunningAttempt, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The end of a child, and what it means for the jobs that it had claimed."""

    child: Child
    # The attempts that ended with the process, except those the supervisor had ended.
    attempts: Sequence[RunningAttempt] = ()
    # (job id, lease token) of attempts that had run and must not start again.
    kept: Set[tuple[UUID, int]] = frozenset()
    # What the attempts are charged with; None: they are not charged.
    cause: str | None = None
    # How the process ended, for jobs that may start only once.
    exit: str = ""
    # The child was shut down: its attempts are given back.
    is_shutdown: bool = False
    # The child has left nothing behind: its heartbeat row can be deleted.
    is_clean: bool = False


def judge_death(child: Child, code: int, *, is_stopping: bool) -> Death:
    """Return what the exit of a child means; `is_stopping`: the supervisor stops."""
    memory = child.shared_memory
    # Not the exit code: a handler may end the process with code 0, too.
    has_ended = memory.has_ended
    cause = None if has_ended else describe_exit(code)
    is_well = has_ended_well(child, code)
    return Death(
        child=child,
        attempts=[
            attempt
            for attempt in memory.read_running()
            if not attempt.is_ended_by_supervisor
        ],
        kept=memory.read_kept(),
        # A child that the supervisor had to kill has not died by itself.
        cause=child.blame if child.is_killed else cause,
        exit=describe_exit(code),
        is_shutdown=is_well or is_stopping,
        is_clean=is_well or (is_stopping and child.is_killed) or _is_unused(child),
    )


def has_ended_well(child: Child, code: int) -> bool:
    """Return whether the child gave back all it had and exited with code 0."""
    return code == 0 and child.shared_memory.has_ended


def is_failed_start(child: Child, code: int) -> bool:
    """Return whether the child died before it could claim anything.

    Nothing is claimed before READY. A later death is a crash.
    """
    return child.stage is Stage.STARTING and (code > 0 or child.is_killed)


def _is_unused(child: Child) -> bool:
    return child.is_leaving and child.stage is Stage.STARTING


def report_death(
    death: Death, code: int, *, is_stopping: bool, logger: LogQueue
) -> None:
    """Log the end of a child: an error, unless it was expected."""
    child = death.child
    is_expected = (
        has_ended_well(child, code)
        or _is_unused(child)
        or child.is_killed
        or is_stopping
    )
    logger.log(
        logging.INFO if is_expected else logging.ERROR,
        Event(
            f"child {describe_exit(code)}",
            pid=child.process.pid,
            worker_id=child.id,
            running=len(death.attempts),
            processed=child.shared_memory.counts.processed,
            lived=time.monotonic() - child.started,
        ),
    )
