"""ProcessPool: the slots of a supervisor, the child in each, and children that leave.

Starts, replaces and retires children when the supervisor asks for it. Nothing here
waits or writes to the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...options import Options
from .child import Child
from .memory_values import Stage
from .supervised_heartbeat import isolate

# How long the child for suspects waits for another one.
ISOLATION_IDLE_SECONDS = 60.0
# A child that lived for less counts as a failed start.
SHORT_LIFE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class ProcessSlot:
    """A place for one child, which is kept filled while there is work for it."""

    options: Options
    is_isolated: bool = False
    child: Child | None = None
    # Takes over when it is ready.
    successor: Child | None = None
    # Its child has ended because no job is left (--burst, --once).
    is_done: bool = False
    # Short lives in a row, and the (monotonic) moment before which no child starts.
    failures: int = 0
    not_before: float = 0.0

    def count_running(self) -> int:
        return 0 if self.child is None else self.child.shared_memory.counts.running

    def plan_restart(self, now: float, *, lived: float) -> None:
        """Set when the next child may start: later after several short lives."""
        is_short = lived < SHORT_LIFE_SECONDS
        self.failures = self.failures + 1 if is_short else 0
        pause = 0.25 * 2.0 ** min(self.failures, 10) if self.failures > 1 else 0.0
        self.not_before = now + min(pause, LONGEST_PAUSE_SECONDS)


class ProcessPool:
    """Slots with children, and children that were asked to end."""

    def __init__(
        self,
        options: Options,
        *,
        size: int,
        start: Callable[[ProcessSlot], Child | None],
    ) -> None:
        # Jobs wait that must run alone, one at a time.
        self.is_isolation_wanted = False
        # No child is started until the next change_over().
        self.is_held_back = False
        self._options = options
        # Returns None if the system could not start a process.
        self._start = start
        self._slots = [ProcessSlot(options) for _ in range(size)]
        self._isolation = ProcessSlot(isolate(options), is_isolated=True)
        self._isolation_used = 0.0
        # Asked to end, and already replaced.
        self._leaving: list[Child] = []
        # The next children start when the last of _leaving has ended.
        self._is_changing_over = False

    @property
    def size(self) -> int:
        """The number of slots for children that run any job."""
        return len(self._slots)

    @property
    def is_done(self) -> bool:
        """True if every slot has reached the end of --burst or --once."""
        return all(slot.is_done for slot in self._slots)

    def count_running(self) -> int:
        """Return how many jobs run in the slots for any job."""
        return sum(map(ProcessSlot.count_running, self._slots))

    def list_children(self) -> list[Child]:
        return [*self.list_active(), *self._leaving]

    def list_active(self) -> Iterator[Child]:
        """Yield the children that are not leaving, and their successors."""
        for slot in self._list_slots():
            if slot.child is not None:
                yield slot.child
            if slot.successor is not None:
                yield slot.successor

    def _list_slots(self) -> list[ProcessSlot]:
        return [*self._slots, self._isolation]

    def fill(self, now: float) -> None:
        """Start a child in each slot that is free and needed."""
        if self.is_held_back or (self._is_changing_over and self._leaving):
            return
        self._is_changing_over = False
        for slot in self._slots:
            if slot.child is None and not slot.is_done and now >= slot.not_before:
                slot.child = self._try_start(slot, now)
        isolation = self._isolation
        is_free = isolation.child is None and now >= isolation.not_before
        if self.is_isolation_wanted and is_free:
            isolation.child = self._try_start(isolation, now)
            self._isolation_used = now
        if self.is_done:
            self._retire_started(isolation)

    def _try_start(self, slot: ProcessSlot, now: float) -> Child | None:
        child = self._start(slot)
        if child is None:
            slot.plan_restart(now, lived=0.0)
        return child

    def watch_isolation(self, now: float) -> None:
        """Retire the child for suspects when there have been none for a while."""
        child = self._isolation.child
        if child is None:
            return
        if child.shared_memory.counts.running or self.is_isolation_wanted:
            self._isolation_used = now
            self.is_isolation_wanted = False
        elif now - self._isolation_used > ISOLATION_IDLE_SECONDS:
            self._retire_started(self._isolation)

    def recycle(self, now: float) -> None:
        """Start successors for used-up children, which retire once those are ready."""
        for slot in self._slots:
            child, successor = slot.child, slot.successor
            if child is None or child.stage is not Stage.READY:
                continue
            if successor is None and self._is_used_up(child):
                if now >= slot.not_before:
                    slot.successor = self._try_start(slot, now)
            elif successor is not None and successor.stage is Stage.READY:
                self._retire_started(slot)

    def _is_used_up(self, child: Child) -> bool:
        options = self._options
        if (
            options.max_jobs
            and child.shared_memory.counts.processed >= options.max_jobs
        ):
            return True
        return bool(options.max_memory and child.memory > options.max_memory)

    def fit(self, count: int) -> None:
        """Add slots, or retire the children with the fewest running jobs."""
        while len(self._slots) < count:
            self._slots.append(ProcessSlot(self._options))
        for slot in sorted(self._slots, key=ProcessSlot.count_running):
            if len(self._slots) > count and slot.successor is None:
                self._retire(slot)
                self._slots.remove(slot)

    def change_over(self) -> None:
        """Retire all children. The next ones start when the last of these has ended:
        old and new code never run side by side."""
        for slot in self._list_slots():
            self._retire(slot)
            # The successor, which has moved up.
            self._retire(slot)
            slot.failures, slot.not_before = 0, 0.0
        self._is_changing_over, self.is_held_back = True, False

    def _retire_started(self, slot: ProcessSlot) -> None:
        """Retire a child that is no longer needed, once it has started."""
        if slot.child is not None and slot.child.stage >= Stage.READY:
            self._retire(slot)

    def _retire(self, slot: ProcessSlot) -> None:
        """Retire the child of a slot and free the slot."""
        if slot.child is not None:
            slot.child.retire()
            self.detach(slot.child)

    def detach(self, child: Child) -> None:
        """Free the slot of a child that is about to end, for its successor."""
        for slot in self._list_slots():
            if slot.child is child:
                slot.child, slot.successor = slot.successor, None
                self._leaving.append(child)

    def remove(self, child: Child, now: float) -> ProcessSlot | None:
        """Remove a child that has ended; return its slot if it ended unasked."""
        if child in self._leaving:
            self._leaving.remove(child)
            return None
        [slot] = [
            slot for slot in self._list_slots() if child in (slot.child, slot.successor)
        ]
        if slot.successor is child:
            slot.successor = None
        else:
            slot.child, slot.successor = slot.successor, None
        slot.plan_restart(now, lived=now - child.started)
        return slot
