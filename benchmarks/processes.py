"""Processor time and memory of process trees, read from /proc."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
PR_SET_PDEATHSIG = 1
TICKS = os.sysconf("SC_CLK_TCK")


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def tree(pids: Iterable[int]) -> list[int]:
    """Return these processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            children.setdefault(_fields(entry)[1], []).append(int(entry.name))
    found, waiting = [], list(pids)
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def processor_seconds(pids: Iterable[int]) -> float:
    """Return the processor seconds used by processes and their reaped children."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += sum(_fields(PROC / str(pid))[11:15])
    return total / TICKS


def memory_megabytes(pids: Iterable[int]) -> float:
    """Return the memory of processes; pages shared by n of them count for 1/n."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            text = (PROC / str(pid) / "smaps_rollup").read_text()
            total += int(text.partition("Pss:")[2].split()[0])
    return total / 1024


def session_of(pid: int) -> int:
    """Return the session that a process belongs to."""
    return _fields(PROC / str(pid))[3]


def _fields(entry: Path) -> list[int]:
    """Return state (as 0), parent, … of /proc/<pid>/stat, the name left out."""
    text = (entry / "stat").read_text().rpartition(")")[2]
    return [int(part) if part.lstrip("-").isdigit() else 0 for part in text.split()]
