"""Real worker processes for the tests, with their logs in files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from django.conf import settings

from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent


class WorkerProcess:
    """`manage.py runworker` as a separate process, stopped at the end of the block."""

    def __init__(
        self,
        env: dict[str, str],
        *flags: str,
        is_group: bool = False,
        **variables: str,
    ) -> None:
        handle, path = tempfile.mkstemp(prefix="jobqueue-worker-", suffix=".log")
        self.log = Path(path)
        with os.fdopen(handle, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "django", "runworker", *flags],
                env={**env, **variables},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=is_group,
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
        """Kill it without any clean-up, like a power cut."""
        self.process.kill()
        self.process.wait()

    def wait(self, *, timeout: float = 60.0) -> int:
        return self.process.wait(timeout)

    def wait_until_started(self) -> WorkerProcess:
        wait_until(lambda: self.has_logged("worker started") or self._fail_if_ended())
        return self

    def wait_until_logged(self, *texts: str, timeout: float = 30.0) -> None:
        """Wait until all texts are in the log.

        A process acts first and logs later, in another thread: what a test sees in the
        database or in /proc is no proof that the line is written.
        """
        wait_until(lambda: all(map(self.has_logged, texts)), timeout=timeout)

    def has_logged(self, text: str) -> bool:
        return text in self.read_log()

    def read_log(self) -> str:
        return self.log.read_text(errors="replace")

    def _fail_if_ended(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the worker has exited:\n{self.read_log()}")
        return False


def list_children(pid: int) -> list[int]:
    """Return the pids of the living children of a process."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _read_parent(entry) == pid
    ]


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _read_parent(entry: Path) -> int | None:
    try:
        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else int(parent)


def make_worker_env() -> dict[str, str]:
    """Return the environment in which a worker process uses the test databases."""
    # Not NAME: a database that no test requested was not created, and the name of the
    # real database must not get into a test.
    names = {
        f"JOBQUEUE_TEST_NAME_{alias}": settings.DATABASES[alias]["TEST"]["NAME"]
        for alias in settings.DATABASES
    }
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, **names, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def run_burst(env: dict[str, str], *flags: str, **variables: str) -> str:
    """Run a worker until the queue is empty; return its log."""
    with WorkerProcess(env, "--burst", *flags, **variables) as worker:
        assert worker.wait(timeout=120) == 0
        return worker.read_log()
