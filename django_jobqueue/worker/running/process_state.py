"""Settings of the process that a job can change and the worker restores.

Only what keeps the worker or the jobs beside it from working, and what can be read in
well under a microsecond: this runs after every attempt. Called by the thread pool.
"""

from __future__ import annotations

import gc
import logging
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """The values of this process before its first job."""

    recursion_limit: int
    switch_interval: float
    collects: bool
    # logging.disable()
    disabled_level: int

    def restore(self) -> None:
        """Restore values that a job has made worse. Values it has made better stay: a
        library may set them once, when it is imported."""
        if sys.getrecursionlimit() < self.recursion_limit:
            sys.setrecursionlimit(self.recursion_limit)
        if sys.getswitchinterval() > self.switch_interval:
            sys.setswitchinterval(self.switch_interval)
        if self.collects and not gc.isenabled():
            gc.enable()
        if logging.root.manager.disable > self.disabled_level:
            logging.disable(self.disabled_level)


def read_process_state() -> ProcessState:
    return ProcessState(
        recursion_limit=sys.getrecursionlimit(),
        switch_interval=sys.getswitchinterval(),
        collects=gc.isenabled(),
        disabled_level=logging.root.manager.disable,
    )
