"""Board: the small memory that a supervisor shares with one of its children.

The supervisor writes when the last beat was confirmed, the child which attempts are
inside a handler. It outlives the child, so that a death charges exactly those, and no
job that may start only once is given back after it has run. Each field has one writer;
a place is written before its sequence says that it is taken.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

from ..lifecycle.beat import BeatReply
from ..lifecycle.claim import Claim

# Changes with every change below: a child of another version must not guess.
LAYOUT = 2

_HEADER = 128
_PLACE = 128
# By the supervisor: the confirmed beat (monotonic), and what the database answered.
_CONFIRMED = struct.Struct("<d")
_REPLY = struct.Struct("<BB")
_REPLY_AT = 8
# By the child: ticks, jobs processed, failed and running, its stage, suspects seen.
_COUNTS = struct.Struct("<QQQQ")
_COUNTS_AT = 16
_STAGE = struct.Struct("<Q")
_STAGE_AT = 48
_SUSPECTS_AT = 56
# A place: odd sequence = an attempt is inside. The second one is the supervisor's.
_SEQUENCE = struct.Struct("<Q")
_EXPELLED_AT = 8
_ATTEMPT = struct.Struct("<16sqiiddQd4i")
_ATTEMPT_AT = 16
_LIMIT = struct.Struct("<dQd4i")
_LIMIT_AT = _ATTEMPT_AT + struct.calcsize("<16sqiid")
# After the places: attempts that have left their handler and are kept in mind.
_KEPT = struct.Struct("<16sq")
_NOBODY = (bytes(16), 0)

PIDS = 4
# More than a worker ever has at a time with an end that is not written yet.
KEPT = 1024


class Stage(IntEnum):
    """How far a child is."""

    STARTING = 0
    READY = 1
    DRAINING = 2
    # --burst or --once has come to its end.
    DRAINED = 3


class Overrun(IntEnum):
    """Why an attempt is to end."""

    TIMEOUT = 0
    CANCELLED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the child says of itself, a few times a second."""

    ticks: int = 0
    processed: int = 0
    failed: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """One attempt that is inside a handler."""

    place: int
    sequence: int
    id: UUID
    lease_token: int
    attempt: int
    max_attempts: int
    # Monotonic: since when, and when the supervisor ends it.
    entered: float
    limit: float
    cause: Overrun
    # Seconds until the next attempt, None if the child could not say.
    delay: float | None
    # Backends that work for it.
    pids: tuple[int, ...]
    is_expelled: bool


class Board:
    """One block of memory: a header, as many places as jobs may run at a time, and the
    attempts that were kept."""

    def __init__(self, places: int, *, fd: int | None = None) -> None:
        self._kept_at = _HEADER + places * _PLACE
        size = self._kept_at + KEPT * _KEPT.size
        self.places = places
        self.fd = _make_file(size) if fd is None else fd
        self._memory = mmap.mmap(self.fd, size)
        # Of the child: places nobody is in, and the sequence of each.
        self._free = deque(range(places))
        self._sequences = [0] * places
        self._free_kept = deque(range(KEPT))

    def close_file(self) -> None:
        """Close what a child inherits; the memory stays as long as somebody has it."""
        os.close(self.fd)

    # What the supervisor writes.

    def confirm(self, sent: float, reply: BeatReply) -> None:
        """Note that the beat sent at this (monotonic) moment has reached the rows."""
        answer = (reply.is_steady, reply.is_someone_silent)
        _REPLY.pack_into(self._memory, _REPLY_AT, *answer)
        _CONFIRMED.pack_into(self._memory, 0, sent)

    def expel(self, inside: Inside) -> None:
        """Note that an attempt was ended over the head of its child."""
        offset = _HEADER + inside.place * _PLACE + _EXPELLED_AT
        _SEQUENCE.pack_into(self._memory, offset, inside.sequence)

    # What the child writes.

    def publish(self, counts: Counts) -> None:
        values = (counts.ticks, counts.processed, counts.failed, counts.running)
        _COUNTS.pack_into(self._memory, _COUNTS_AT, *values)

    def enter(self, claim: Claim, *, entered: float, limit: float, most: int) -> int:
        """Take a place for an attempt that is about to call its handler."""
        place = self._free.popleft()
        offset = _HEADER + place * _PLACE
        _ATTEMPT.pack_into(
            self._memory,
            offset + _ATTEMPT_AT,
            claim.id.bytes,
            claim.lease_token,
            claim.attempt,
            most,
            entered,
            limit,
            Overrun.TIMEOUT,
            math.nan,
            0,
            0,
            0,
            0,
        )
        self._turn(place, offset)
        return place

    def leave(self, place: int) -> None:
        """Free the place of an attempt whose handler has returned."""
        self._turn(place, _HEADER + place * _PLACE)
        self._free.append(place)

    def keep(self, claim: Claim) -> int | None:
        """Keep an attempt in mind until its end is written; None: there is no room."""
        if not self._free_kept:
            return None
        number = self._free_kept.popleft()
        self._write_kept(number, claim.id.bytes, claim.lease_token)
        return number

    def forget(self, number: int) -> None:
        """Forget an attempt that was kept."""
        self._write_kept(number, *_NOBODY)
        self._free_kept.append(number)

    def _write_kept(self, number: int, id: bytes, token: int) -> None:
        offset = self._kept_at + number * _KEPT.size
        _KEPT.pack_into(self._memory, offset, id, token)

    def limit(
        self,
        place: int,
        limit: float,
        cause: Overrun,
        *,
        delay: float | None,
        pids: tuple[int, ...],
    ) -> None:
        """Say when an attempt that was told to stop is to be ended, and how."""
        padded = (*pids[:PIDS], *(0,) * (PIDS - len(pids)))
        offset = _HEADER + place * _PLACE + _LIMIT_AT
        wait = math.nan if delay is None else delay
        _LIMIT.pack_into(self._memory, offset, limit, cause, wait, *padded)

    def is_expelled(self, place: int) -> bool:
        """Tell whether the attempt in this place was ended by the supervisor."""
        offset = _HEADER + place * _PLACE
        [sequence] = _SEQUENCE.unpack_from(self._memory, offset)
        [expelled] = _SEQUENCE.unpack_from(self._memory, offset + _EXPELLED_AT)
        return bool(sequence % 2 and sequence == expelled)

    def tell_suspects(self) -> None:
        """Say that a job waits which has to run alone."""
        [count] = _STAGE.unpack_from(self._memory, _SUSPECTS_AT)
        _STAGE.pack_into(self._memory, _SUSPECTS_AT, count + 1)

    @property
    def stage(self) -> Stage:
        return Stage(_STAGE.unpack_from(self._memory, _STAGE_AT)[0])

    @stage.setter
    def stage(self, stage: Stage) -> None:
        _STAGE.pack_into(self._memory, _STAGE_AT, stage)

    def _turn(self, place: int, offset: int) -> None:
        self._sequences[place] += 1
        _SEQUENCE.pack_into(self._memory, offset, self._sequences[place])

    # What both read.

    @property
    def confirmed(self) -> float:
        """The (monotonic) moment of the last confirmed beat, 0.0 before the first."""
        moment: float = _CONFIRMED.unpack_from(self._memory, 0)[0]
        return moment

    @property
    def reply(self) -> BeatReply:
        return BeatReply(*map(bool, _REPLY.unpack_from(self._memory, _REPLY_AT)))

    @property
    def counts(self) -> Counts:
        values = _COUNTS.unpack_from(self._memory, _COUNTS_AT)
        return Counts(
            ticks=values[0], processed=values[1], failed=values[2], running=values[3]
        )

    @property
    def suspects_seen(self) -> int:
        count: int = _STAGE.unpack_from(self._memory, _SUSPECTS_AT)[0]
        return count

    def read_inside(self) -> Iterator[Inside]:
        """Yield the attempts that are inside a handler."""
        for place in range(self.places):
            offset = _HEADER + place * _PLACE
            [sequence] = _SEQUENCE.unpack_from(self._memory, offset)
            if sequence % 2:
                inside = self._read_place(place, offset, sequence)
                # Left meanwhile: what was read may be of two attempts.
                if _SEQUENCE.unpack_from(self._memory, offset)[0] == sequence:
                    yield inside

    def read_kept(self) -> set[tuple[UUID, int]]:
        """Return (job id, lease token) of the attempts that are kept in mind."""
        memory = self._memory[self._kept_at :]
        return {
            (UUID(bytes=id), token)
            for id, token in _KEPT.iter_unpack(memory)
            if (id, token) != _NOBODY
        }

    def _read_place(self, place: int, offset: int, sequence: int) -> Inside:
        values = _ATTEMPT.unpack_from(self._memory, offset + _ATTEMPT_AT)
        id, token, attempt, most, entered, limit, cause, delay, *pids = values
        [expelled] = _SEQUENCE.unpack_from(self._memory, offset + _EXPELLED_AT)
        return Inside(
            place=place,
            sequence=sequence,
            id=UUID(bytes=id),
            lease_token=token,
            attempt=attempt,
            max_attempts=most,
            entered=entered,
            limit=limit,
            cause=Overrun(cause),
            delay=None if math.isnan(delay) else delay,
            pids=tuple(filter(None, pids)),
            is_expelled=expelled == sequence,
        )


def _make_file(size: int) -> int:
    """Return a file without a name, which ends with the last process that has it."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("jobqueue-board")
    else:
        fd, path = tempfile.mkstemp(prefix="jobqueue-board-")
        os.unlink(path)
    os.ftruncate(fd, size)
    return fd
