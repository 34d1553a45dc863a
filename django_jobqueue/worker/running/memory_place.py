"""MemoryPlace: the place of one attempt in the memory that its supervisor reads.

Used by InFlightJob, which holds its lock around each call except forget(). The place
shows when the supervisor ends the attempt by force, and outlives the process.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from ...storage.claims import Claim
from ..supervision.memory_values import InterruptReason
from ..supervision.shared_memory import SharedMemory

# In addition to the grace, for the project's code before and after a handler: imports,
# the text of an exception, a backoff function, the destructors of its objects.
AROUND_HANDLER_SECONDS = 60.0
# By how much the limit that the supervisor knows may be too early.
LIMIT_SLACK_SECONDS = 1.0
NOT_CALLED = -math.inf


@dataclass(slots=True, eq=False)
class MemoryPlace:
    """Taken before the handler is called, freed when no code of the job runs."""

    claim: Claim
    memory: SharedMemory
    # Seconds between the soft interrupt and the hard kill.
    grace: float
    # None while no place is taken.
    number: int | None = None
    # Where the attempt is kept until its end is written, if it must not start again.
    kept: int | None = None
    # The limit while the handler runs; -inf: it does not run.
    _shown_limit: float = NOT_CALLED
    _is_interrupted: bool = False

    def reserve(self, *, most: int, cause: InterruptReason) -> None:
        """Take a place for what runs before the handler."""
        if self.number is None:
            now = time.monotonic()
            limit = now + self.grace + AROUND_HANDLER_SECONDS
            self.number = self.memory.enter(
                self.claim, entered=now, limit=limit, most=most, cause=cause
            )

    def show_call(self, *, entered: float, deadline: float, most: int) -> None:
        """Show that the handler is called."""
        limit = deadline + self.grace
        if self.number is None:
            self.number = self.memory.enter(
                self.claim, entered=entered, limit=limit, most=most
            )
        elif limit - self._shown_limit > LIMIT_SLACK_SECONDS:
            self.memory.call(self.number, entered=entered, limit=limit, most=most)
        else:
            return
        self._shown_limit = limit

    def show_return(self, *, is_last: bool) -> None:
        """Show that the handler has returned; `is_last`: it must not start again."""
        if self.number is None or self._shown_limit == NOT_CALLED:
            return
        if is_last and self.kept is None:
            # A crash before its end is written must not start it again.
            self.kept = self.memory.keep(self.claim)
        self._shown_limit = NOT_CALLED
        limit = time.monotonic() + self.grace + AROUND_HANDLER_SECONDS
        cause = InterruptReason.OUTSIDE
        if self._is_interrupted:
            self.memory.limit(self.number, limit, cause, delay=None, pids=())
        else:
            self.memory.show_return(self.number, limit, cause)

    def show_interrupt(
        self, cause: InterruptReason, *, delay: float | None, pids: tuple[int, ...]
    ) -> None:
        """Show that the attempt was asked to stop: after the grace it ends by force."""
        if self.number is not None:
            self._is_interrupted = True
            limit = time.monotonic() + self.grace
            self.memory.limit(self.number, limit, cause, delay=delay, pids=pids)

    @property
    def is_ended_by_supervisor(self) -> bool:
        number = self.number
        return number is not None and self.memory.is_ended_by_supervisor(number)

    def free(self) -> None:
        """Free the place; the attempt may still be kept."""
        if self.number is not None:
            self.memory.leave(self.number)
            self.number = None
            self._shown_limit = NOT_CALLED

    def forget(self) -> None:
        """No longer keep the attempt: its end is written."""
        if self.kept is not None:
            self.memory.forget(self.kept)
            self.kept = None
