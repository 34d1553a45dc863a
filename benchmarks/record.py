"""What handlers leave behind for whoever measures them: counts and time stamps.

Each process that runs jobs writes into two files of its own in BENCH_RECORD: a block of
shared memory with the number of calls and the time of the first, and a list of delays.
No system call and no lock for a call that is only counted, so that counting costs
0.2 µs; a reader in another process may look as often as it likes. Standard library
only, and no database: every system is counted in the same way.
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
    """Count a call and keep the nanoseconds since the job was sent."""
    now = time.monotonic_ns()
    count_call()
    os.write(_delays, (now - sent).to_bytes(8, "little", signed=True))


def _open() -> None:
    global _pid, _numbers, _block, _delays
    folder, pid = Path(os.environ["BENCH_RECORD"]), os.getpid()
    if pid == _pid:
        return  # Another thread was faster.
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


# A thread that the child does not have may have held it.
os.register_at_fork(after_in_child=_renew_lock)


@dataclass(frozen=True, slots=True)
class Sample:
    """All processes together at one moment; `begun` is when each of them began."""

    moment: int
    calls: int
    begun: tuple[int, ...]


def read_sample(folder: Path) -> Sample:
    """Add up what the processes have counted so far."""
    calls, begun = 0, []
    for path in folder.glob("*.count"):
        values = _read(path)
        if len(values) == FIELDS and values[0]:
            calls += values[0]
            begun.append(values[1])
    return Sample(time.monotonic_ns(), calls, tuple(sorted(begun)))


def read_delays(folder: Path) -> list[float]:
    """Return the delays kept so far, in seconds."""
    values = [value for path in folder.glob("*.delays") for value in _read(path)]
    return [value / 1e9 for value in values]


def _read(path: Path) -> array[int]:
    content = path.read_bytes()
    return array("q", content[: len(content) // 8 * 8])
