"""Counts and time stamps that handlers write and the measuring process reads.

Each process that runs jobs writes two files in BENCH_RECORD: a block of shared memory
with the number of calls and the time of the first, and a list of delays. A call that is
only counted takes no system call and no lock, and costs 0.2 µs. A reader in another
process may poll as often as it likes. Standard library only, and no database: every
system is counted in the same way.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIELDS = 2  # calls, time of the first one (CLOCK_MONOTONIC, nanoseconds)

_opening = threading.Lock()
_pid = 0
_numbers: Iterator[int] = iter(())
_block: Any = None
_delays = -1


def count_call() -> None:
    """Count one call of a handler in this process."""
    # A forked child must not write into its parent's block.
    if os.getpid() != _pid:
        with _opening:
            _open()
    _block[0] = next(_numbers)


def keep_delay(sent: int) -> None:
    """Count a call and record the nanoseconds since the job was sent."""
    now = time.monotonic_ns()
    count_call()
    os.write(_delays, (now - sent).to_bytes(8, "little", signed=True))


def _open() -> None:
    global _pid, _numbers, _block, _delays
    folder, pid = Path(os.environ["BENCH_RECORD"]), os.getpid()
    if pid == _pid:
        return  # Another thread has opened the files.
    with (folder / f"{pid}.count").open("w+b") as file:
        file.truncate(8 * FIELDS)
        _block = memoryview(mmap.mmap(file.fileno(), 8 * FIELDS)).cast("q")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    _delays = os.open(folder / f"{pid}.delays", flags)
    _block[1] = time.monotonic_ns()
    _numbers = itertools.count(1)
    _pid = pid


def _renew_lock() -> None:
    global _opening
    _opening = threading.Lock()


# At the fork, a thread that does not exist in the child may have held the lock.
os.register_at_fork(after_in_child=_renew_lock)


@dataclass(frozen=True, slots=True)
class Sample:
    """All processes together at one moment; `begun` is when each of them began."""

    moment: int
    calls: int
    begun: tuple[int, ...]


def read_sample(folder: Path) -> Sample:
    """Add up the counts of all processes."""
    calls, begun = 0, []
    for path in folder.glob("*.count"):
        values = _read(path)
        if len(values) == FIELDS and values[0]:
            calls += values[0]
            begun.append(values[1])
    return Sample(time.monotonic_ns(), calls, tuple(sorted(begun)))


def read_delays(folder: Path) -> list[float]:
    """Return the delays recorded so far, in seconds."""
    values = [value for path in folder.glob("*.delays") for value in _read(path)]
    return [value / 1e9 for value in values]


def _read(path: Path) -> array[int]:
    content = path.read_bytes()
    return array("q", content[: len(content) // 8 * 8])
