"""Crew: all children of a supervisor: who sits where, and who is about to leave.

Starts, replaces and lets go; whom and when is for the supervisor to say. Nothing here
waits, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..options import Options
from .board import Stage
from .children import Child
from .link import isolate
from .seats import Seat

# The child for suspects waits so long for another one.
ISOLATION_IDLE = 60.0


class Crew:
    """Seats with children, and children that were told to end."""

    def __init__(
        self, options: Options, *, size: int, start: Callable[[Seat], Child]
    ) -> None:
        # Suspects wait for the child that runs them one by one.
        self.is_isolation_wanted = False
        # Nobody is started for the time being.
        self.is_held_back = False
        self._options = options
        self._start = start
        self._seats = [Seat(options) for _ in range(size)]
        self._isolation = Seat(isolate(options), is_isolated=True)
        self._isolation_used = 0.0
        # Told to end, and already replaced.
        self._leaving: list[Child] = []
        # The next ones are started when the last of those has ended.
        self._is_changing_over = False

    @property
    def size(self) -> int:
        """How many seats there are for children that run any job."""
        return len(self._seats)

    @property
    def is_done(self) -> bool:
        """True if all of them have come to the end of --burst or --once."""
        return all(seat.is_done for seat in self._seats)

    def count_running(self) -> int:
        """Return how many jobs run in the children that run any job, and stay."""
        return sum(map(Seat.count_running, self._seats))

    def list_children(self) -> list[Child]:
        return [*self.list_seated(), *self._leaving]

    def list_seated(self) -> Iterator[Child]:
        """Yield those that stay, and their successors."""
        for seat in self._list_seats():
            if seat.child is not None:
                yield seat.child
            if seat.successor is not None:
                yield seat.successor

    def _list_seats(self) -> list[Seat]:
        return [*self._seats, self._isolation]

    def fill(self, now: float) -> None:
        """Start a child in each seat that is free and wanted."""
        if self.is_held_back or (self._is_changing_over and self._leaving):
            return
        self._is_changing_over = False
        for seat in self._seats:
            if seat.child is None and not seat.is_done and now >= seat.not_before:
                seat.child = self._start(seat)
        alone = self._isolation
        is_free = alone.child is None and now >= alone.not_before
        if self.is_isolation_wanted and is_free:
            alone.child = self._start(alone)
            self._isolation_used = now
        if self.is_done:
            self._dismiss(alone)

    def watch_isolation(self, now: float) -> None:
        """Let the child for suspects go when there are none for a while."""
        child = self._isolation.child
        if child is None:
            return
        if child.board.counts.running or self.is_isolation_wanted:
            self._isolation_used = now
            self.is_isolation_wanted = False
        elif now - self._isolation_used > ISOLATION_IDLE:
            self._dismiss(self._isolation)

    def recycle(self) -> None:
        """Start successors in time, and let the old ones go when those are ready."""
        for seat in self._seats:
            child, successor = seat.child, seat.successor
            if child is None or child.stage is not Stage.READY:
                continue
            if successor is None and self._is_used_up(child):
                seat.successor = self._start(seat)
            elif successor is not None and successor.stage is Stage.READY:
                self._dismiss(seat)

    def _is_used_up(self, child: Child) -> bool:
        options = self._options
        if options.max_jobs and child.board.counts.processed >= options.max_jobs:
            return True
        return bool(options.max_memory and child.memory > options.max_memory)

    def fit(self, count: int) -> None:
        """Add seats, or let the children go that have the least to do: they end their
        jobs in their own time."""
        while len(self._seats) < count:
            self._seats.append(Seat(self._options))
        for seat in sorted(self._seats, key=Seat.count_running):
            if len(self._seats) > count and seat.successor is None:
                self._leave(seat)
                self._seats.remove(seat)

    def change_over(self) -> None:
        """Let all go. The next ones are started when the last of these has ended, so
        that old and new code never run beside each other."""
        for seat in self._list_seats():
            self._leave(seat)
            # The successor, which is nobody's now.
            self._leave(seat)
            seat.failures, seat.not_before = 0, 0.0
        self._is_changing_over, self.is_held_back = True, False

    def _dismiss(self, seat: Seat) -> None:
        """Let a child go that is not needed any more, if it is there already."""
        if seat.child is not None and seat.child.stage >= Stage.READY:
            self._leave(seat)

    def _leave(self, seat: Seat) -> None:
        """Let a child end its jobs in their own time, and make room."""
        if seat.child is not None:
            seat.child.retire()
            self.vacate(seat.child)

    def vacate(self, child: Child) -> None:
        """Make room for the successor of a child that is about to end."""
        for seat in self._list_seats():
            if seat.child is child:
                seat.child, seat.successor = seat.successor, None
                self._leaving.append(child)

    def remove(self, child: Child, now: float) -> Seat | None:
        """Take out a child that has ended; return its seat if it ended unasked."""
        if child in self._leaving:
            self._leaving.remove(child)
            return None
        [seat] = [
            seat for seat in self._list_seats() if child in (seat.child, seat.successor)
        ]
        if seat.successor is child:
            seat.successor = None
        else:
            seat.child, seat.successor = seat.successor, None
            seat.plan_restart(child, now)
        return seat
