"""Real worker processes for the tests, with their log in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from tests.waiting import wait_until


class WorkerProcess:
    """`manage.py runworker` in a process of its own; ended with the block."""

    def __init__(self, env: dict[str, str], *flags: str, **variables: str) -> None:
        handle, path = tempfile.mkstemp(prefix="jobqueue-worker-", suffix=".log")
        self.log = Path(path)
        with os.fdopen(handle, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "django", "runworker", *flags],
                env={**env, **variables},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if error is not None:
            print(f"--- log of the worker {self.process.pid}")
            print(self.read_log())
        self.log.unlink()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self, *, timeout: float = 40.0) -> int:
        """Stop gracefully and return the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout=timeout)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()

    def wait(self, *, timeout: float = 60.0) -> int:
        return self.process.wait(timeout)

    def wait_until_started(self) -> WorkerProcess:
        wait_until(lambda: self.has_logged("worker started") or self._fail_if_ended())
        return self

    def has_logged(self, text: str) -> bool:
        return text in self.read_log()

    def read_log(self) -> str:
        return self.log.read_text(errors="replace")

    def _fail_if_ended(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the worker has ended:\n{self.read_log()}")
        return False


def run_burst(env: dict[str, str], *flags: str, **variables: str) -> str:
    """Run a worker until nothing is left to do; return its log."""
    with WorkerProcess(env, "--burst", *flags, **variables) as worker:
        assert worker.wait(timeout=120) == 0
        return worker.read_log()
