"""The worker processes of one system, and what can be read from outside.

driver.py starts them. They run as separate processes: this module reads their processor
time and memory, and stops all of them at the end of the measurement.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from benchmarks import record
from benchmarks.processes import (
    die_with_parent,
    memory_megabytes,
    processor_seconds,
    session_of,
    tree,
)
from tests.venvs import ROOT

STOP_SECONDS = 15
POLL_SECONDS = 0.005


class Failed(Exception):
    """A system did not do what was requested; the text says what happened."""


class Workers:
    """The worker processes of one system."""

    def __init__(
        self, commands: list[list[str]], environment: dict[str, str], records: Path
    ) -> None:
        self.records = records
        self.started = time.monotonic()
        self._log = (records / "log").open("w+b")
        self._processes = [
            subprocess.Popen(
                command,
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
            for command in commands
        ]

    @property
    def pids(self) -> list[int]:
        """Return all worker processes and their descendants."""
        return tree(process.pid for process in self._processes)

    def sample(self) -> record.Sample:
        return record.read_sample(self.records)

    def delays(self) -> list[float]:
        return record.read_delays(self.records)

    def processor_seconds(self) -> float:
        return processor_seconds(self.pids)

    def memory(self) -> float:
        return memory_megabytes(self.pids)

    def wait_for_calls(self, count: int, *, seconds: float) -> record.Sample:
        """Wait until handlers were called `count` times; raise Failed on a timeout."""
        deadline = time.monotonic() + seconds
        while (sample := self.sample()).calls < count:
            self.check()
            if time.monotonic() > deadline:
                raise Failed(f"{sample.calls} of {count} jobs ran in {seconds:.0f} s")
            time.sleep(POLL_SECONDS)
        return sample

    def check(self) -> None:
        """Raise Failed if a worker has exited."""
        for process in self._processes:
            if process.poll() is not None:
                lines = (self.records / "log").read_text(errors="replace").split("\n")
                last = next((line for line in reversed(lines) if line.strip()), "")
                raise Failed(f"a worker exited with {process.returncode}: {last}")

    def stop(self) -> None:
        """Stop all workers; kill those that do not exit in time."""
        pids = self.pids
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        sessions = {process.pid for process in self._processes}
        for pid in pids:
            # Pids are reused: kill only processes that are still in our sessions.
            with contextlib.suppress(OSError):
                if session_of(pid) in sessions:
                    os.kill(pid, signal.SIGKILL)
        self._log.close()
