"""SharedMemory: the small memory that a supervisor shares with one of its children.

The supervisor writes when the last beat was confirmed; the child writes which attempts
are inside a handler. The memory outlives the child: a death charges exactly those
attempts, and a job that may start only once is not given back after it has run. A place
is written before its sequence says that it is taken.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator
from uuid import UUID

from ...storage.claims import Claim
from ...storage.worker_rows import BeatReply
from . import memory_layout as layout
from .memory_layout import place_offset
from .memory_values import Counts, InterruptReason, RunningAttempt, Stage, Stall

# Attempts that can be kept beside those inside handlers. While there is no room for
# more, nothing is started: see is_full.
KEPT_ATTEMPTS = 8192


class SharedMemory:
    """One block of memory; memory_layout says what is where."""

    def __init__(self, places: int, *, fd: int | None = None) -> None:
        self._kept_offset = place_offset(places)
        max_kept = KEPT_ATTEMPTS + places
        size = self._kept_offset + max_kept * layout.KEPT.size
        self.places = places
        self.fd = _make_file(size) if fd is None else fd
        try:
            self._memory: layout.Memory = mmap.mmap(self.fd, size)
        except OSError:
            os.close(self.fd)
            raise
        # Used by the child only: its free places, and the sequence of each place.
        self._free = deque(range(places))
        self._sequences = [0] * places
        self._free_kept = deque(range(max_kept))
        if fd is not None:
            detach = weakref.WeakMethod(self._detach)
            os.register_at_fork(
                after_in_child=lambda: (call := detach()) is not None and call()
            )

    def _detach(self) -> None:
        """In a fork that a handler has made: the supervisor must not see its writes."""
        self._memory = bytearray(self._memory)

    def close_file(self) -> None:
        """Close the descriptor that a child inherits; the memory stays mapped."""
        os.close(self.fd)

    # Written by the supervisor.

    def confirm(self, sent: float, reply: BeatReply) -> None:
        """Note that the beat sent at this (monotonic) moment has been committed."""
        layout.REPLY.write(self._memory, reply.is_steady, reply.is_someone_silent)
        layout.CONFIRMED.write(self._memory, sent)

    def mark_ended_by_supervisor(self, attempt: RunningAttempt) -> None:
        """Note that the supervisor has ended an attempt of this child."""
        base = place_offset(attempt.place)
        layout.ENDED_SEQUENCE.write(self._memory, attempt.sequence, base=base)

    # Written by the child.

    def publish(self, counts: Counts) -> None:
        values = (counts.ticks, counts.processed, counts.failed, counts.running)
        layout.COUNTS.write(self._memory, *values)

    def enter(
        self,
        claim: Claim,
        *,
        entered: float,
        limit: float,
        most: int,
        cause: InterruptReason = InterruptReason.TIMEOUT,
    ) -> int:
        """Take a place for an attempt that is about to call its handler, or (cause
        OUTSIDE) has to run other code of the project before that."""
        # Packed before a place is taken: a value that does not fit must not cost one.
        packed = layout.ATTEMPT.format.pack(
            claim.id.bytes,
            claim.lease_token,
            claim.attempt,
            most,
            entered,
            limit,
            cause,
            math.nan,
            *layout.NO_BACKENDS,
        )
        place = self._free.popleft()
        start = place_offset(place) + layout.ATTEMPT.offset
        self._memory[start : start + layout.ATTEMPT.format.size] = packed
        self._advance_sequence(place)
        return place

    def call(self, place: int, *, entered: float, limit: float, most: int) -> None:
        """Note that the attempt in this place is about to call its handler."""
        values = (most, entered, limit, InterruptReason.TIMEOUT)
        layout.CALL.write(self._memory, *values, base=place_offset(place))

    def show_return(self, place: int, limit: float, cause: InterruptReason) -> None:
        """Note that the handler in this place has returned without an interrupt."""
        offset = place_offset(place) + layout.RETURN.offset
        layout.RETURN.format.pack_into(self._memory, offset, limit, cause)

    def leave(self, place: int) -> None:
        """Free the place of an attempt that is over."""
        self._advance_sequence(place)
        self._free.append(place)

    def keep(self, claim: Claim) -> int | None:
        """Keep an attempt until its end is written; None: there is no room, which
        is_full prevents."""
        try:
            number = self._free_kept.popleft()
        except IndexError:
            return None
        self._write_kept(number, claim.id.bytes, claim.lease_token)
        return number

    @property
    def is_full(self) -> bool:
        """True if there would be no room to keep every attempt that may be inside."""
        return len(self._free_kept) < self.places

    def forget(self, number: int) -> None:
        """Forget an attempt that was kept."""
        self._write_kept(number, *layout.NOT_KEPT)
        self._free_kept.append(number)

    def _write_kept(self, number: int, id: bytes, token: int) -> None:
        offset = self._kept_offset + number * layout.KEPT.size
        layout.KEPT.pack_into(self._memory, offset, id, token)

    def limit(
        self,
        place: int,
        limit: float,
        cause: InterruptReason,
        *,
        delay: float | None,
        pids: tuple[int, ...],
    ) -> None:
        """Write when and how the supervisor ends an attempt that was asked to stop."""
        pids = pids[: layout.MAX_BACKENDS]
        padding = (0,) * (layout.MAX_BACKENDS - len(pids))
        wait = math.nan if delay is None else delay
        base = place_offset(place)
        layout.LIMIT.write(self._memory, limit, cause, wait, *pids, *padding, base=base)

    def is_ended_by_supervisor(self, place: int) -> bool:
        """Return whether the supervisor has ended the attempt in this place."""
        base = place_offset(place)
        sequence = layout.SEQUENCE.read_one(self._memory, base=base)
        ended = layout.ENDED_SEQUENCE.read_one(self._memory, base=base)
        return bool(sequence % 2 and sequence == ended)

    def flag_suspects(self) -> None:
        """Note that a job waits that must run alone."""
        layout.SUSPECTS.write(self._memory, self.suspects_seen + 1)

    @property
    def stage(self) -> Stage:
        return Stage(layout.STAGE.read_one(self._memory))

    @stage.setter
    def stage(self, stage: Stage) -> None:
        layout.STAGE.write(self._memory, stage)

    def mark_ended(self) -> None:
        """Note that every job was given back: the exit that follows is no crash."""
        layout.ENDED.write(self._memory, 1)

    def publish_stall(self, stall: Stall | None) -> None:
        if stall is None:
            layout.STALL.write(self._memory, b"", 0.0, 0)
        else:
            part = stall.part.encode()[:16]
            layout.STALL.write(self._memory, part, stall.since, stall.is_curable)

    def _advance_sequence(self, place: int) -> None:
        self._sequences[place] += 1
        # Not Field.write(): this runs twice for each job.
        offset = place_offset(place) + layout.SEQUENCE.offset
        layout.SEQUENCE.format.pack_into(self._memory, offset, self._sequences[place])

    # Read by both.

    @property
    def confirmed(self) -> float:
        """The (monotonic) moment of the last confirmed beat, 0.0 before the first."""
        return float(layout.CONFIRMED.read_one(self._memory))

    @property
    def reply(self) -> BeatReply:
        return BeatReply(*map(bool, layout.REPLY.read(self._memory)))

    @property
    def counts(self) -> Counts:
        ticks, processed, failed, running = layout.COUNTS.read(self._memory)
        return Counts(ticks=ticks, processed=processed, failed=failed, running=running)

    @property
    def suspects_seen(self) -> int:
        return int(layout.SUSPECTS.read_one(self._memory))

    @property
    def has_ended(self) -> bool:
        return bool(layout.ENDED.read_one(self._memory))

    @property
    def stall(self) -> Stall | None:
        part, since, is_curable = layout.STALL.read(self._memory)
        if not (name := part.rstrip(b"\0").decode()):
            return None
        return Stall(part=name, since=since, is_curable=bool(is_curable))

    def read_running(self) -> Iterator[RunningAttempt]:
        """Yield the attempts that may have ended the process: inside a handler, or in
        other code of the project."""
        for attempt in self.read_places():
            if attempt.cause is not InterruptReason.TIDYING:
                yield attempt

    def read_places(self) -> Iterator[RunningAttempt]:
        """Yield the attempts that have a place: inside, before or after a handler."""
        for place in range(self.places):
            base = place_offset(place)
            sequence = layout.SEQUENCE.read_one(self._memory, base=base)
            if sequence % 2:
                attempt = self._read_place(place, sequence)
                # If it has left meanwhile, the values may belong to two attempts.
                if layout.SEQUENCE.read_one(self._memory, base=base) == sequence:
                    yield attempt

    def _read_place(self, place: int, sequence: int) -> RunningAttempt:
        base = place_offset(place)
        values = layout.ATTEMPT.read(self._memory, base=base)
        id, token, attempt, most, entered, limit, cause, delay, *pids = values
        ended = layout.ENDED_SEQUENCE.read_one(self._memory, base=base)
        return RunningAttempt(
            place=place,
            sequence=sequence,
            id=UUID(bytes=id),
            lease_token=token,
            attempt=attempt,
            max_attempts=most,
            entered=entered,
            limit=limit,
            cause=InterruptReason(cause),
            delay=None if math.isnan(delay) else delay,
            pids=tuple(filter(None, pids)),
            is_ended_by_supervisor=ended == sequence,
        )

    def read_kept(self) -> set[tuple[UUID, int]]:
        """Return (job id, lease token) of the attempts that are kept."""
        kept = layout.KEPT.iter_unpack(self._memory[self._kept_offset :])
        return {
            (UUID(bytes=id), token)
            for id, token in kept
            if (id, token) != layout.NOT_KEPT
        }


def _make_file(size: int) -> int:
    """Return an unnamed file, which ends with the last process that has it open."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("jobqueue-memory")
    else:
        fd, path = tempfile.mkstemp(prefix="jobqueue-memory-")
        os.unlink(path)
    os.ftruncate(fd, size)
    return fd
