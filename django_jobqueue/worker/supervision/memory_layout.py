"""Layout of the memory that a supervisor shares with a child: which bytes hold what.

A header, then one place for each job that may run at a time, then the kept attempts.
Each field has one writer. Used by SharedMemory only.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import Any

# Raise it with every change below: a child of another version must not guess.
LAYOUT_VERSION = 4

HEADER_BYTES = 128
PLACE_BYTES = 128

Memory = mmap.mmap | bytearray


@dataclass(frozen=True, slots=True)
class Field:
    """Values at a fixed offset of the header, or of each place."""

    offset: int
    format: struct.Struct

    def read(self, memory: Memory, *, base: int = 0) -> tuple[Any, ...]:
        return self.format.unpack_from(memory, base + self.offset)

    def read_one(self, memory: Memory, *, base: int = 0) -> Any:
        return self.format.unpack_from(memory, base + self.offset)[0]

    def write(self, memory: Memory, *values: Any, base: int = 0) -> None:
        self.format.pack_into(memory, base + self.offset, *values)


# The header. Written by the supervisor: the confirmed beat (monotonic seconds), and
# whether this worker is steady and whether another one is silent.
CONFIRMED = Field(0, struct.Struct("<d"))
REPLY = Field(8, struct.Struct("<BB"))
# Written by the child: ticks, jobs processed, failed and running.
COUNTS = Field(16, struct.Struct("<QQQQ"))
STAGE = Field(48, struct.Struct("<Q"))
# How often the child has seen jobs that must run alone.
SUSPECTS = Field(56, struct.Struct("<Q"))
# 1 once the child has given back all it had.
ENDED = Field(64, struct.Struct("<Q"))
# What makes no progress, since when (monotonic), and whether a new process helps.
STALL = Field(72, struct.Struct("<16sdQ"))

# A place. Its sequence is odd while it is taken; the child writes it last.
SEQUENCE = Field(0, struct.Struct("<Q"))
# Written by the supervisor: the sequence of the attempt that it has ended.
ENDED_SEQUENCE = Field(8, struct.Struct("<Q"))
# Job id, lease token, attempt, max attempts, entered, limit, reason, delay, backends.
ATTEMPT = Field(16, struct.Struct("<16sqiiddQd4i"))
MAX_BACKENDS = 4
NO_BACKENDS = (0,) * MAX_BACKENDS
# The part of ATTEMPT that changes when the handler is called: from max attempts on.
CALL = Field(ATTEMPT.offset + struct.calcsize("<16sqi"), struct.Struct("<iddQ"))
# The part of ATTEMPT that changes when the attempt is asked to stop: from limit on.
LIMIT = Field(ATTEMPT.offset + struct.calcsize("<16sqiid"), struct.Struct("<dQd4i"))
# The part of LIMIT that changes when a handler returns by itself.
RETURN = Field(LIMIT.offset, struct.Struct("<dQ"))

# After the places, back to back: (job id, lease token) of attempts that have left their
# handler and whose ends are not written yet.
KEPT = struct.Struct("<16sq")
NOT_KEPT = (bytes(16), 0)


def place_offset(place: int) -> int:
    """Return where a place begins."""
    return HEADER_BYTES + place * PLACE_BYTES
