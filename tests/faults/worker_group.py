"""WorkerGroup: several supervisors that run at the same time.

A supervisor that a test has killed is started again, as systemd would do it.
"""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

from django_jobqueue.models import WorkerHeartbeat
from tests.processes import WorkerProcess, list_children

from .checker import Budgets
from .points import VARIABLE

TTL_SECONDS = 3.0
# Counted from the last fault: by then all jobs must have ended.
DRAIN_SECONDS = TTL_SECONDS + 15.0
# So high that no job dies of the injected faults.
BUDGETS = Budgets(crashes=1000, lost=1000)
SETTINGS = {
    "JOBQUEUE_HEARTBEAT_INTERVAL": "0.5",
    "JOBQUEUE_HEARTBEAT_TTL": str(TTL_SECONDS),
    "JOBQUEUE_MAX_CRASHES": str(BUDGETS.crashes),
    "JOBQUEUE_MAX_LOST": str(BUDGETS.lost),
    "JOBQUEUE_SHUTDOWN_TIMEOUT": "10",
}
# Lines about jobs that succeeded: left out of the log, so that errors stand out.
ROUTINE_LINES = (" job done ", " jobs done ")


class WorkerGroup:
    """Runs `runworker --processes 2` `size` times, until the block ends."""

    def __init__(self, env: dict[str, str], folder: Path, *, size: int = 2) -> None:
        # Files in this folder arm crash points; see points.py.
        self.folder = folder / "armed"
        self.folder.mkdir(exist_ok=True)
        self._env = {**env, **SETTINGS, VARIABLE: str(self.folder)}
        self._old_logs: list[str] = []
        self.workers: list[WorkerProcess] = []
        for _ in range(size):
            self.workers.append(self._start())

    def _start(self) -> WorkerProcess:
        flags = ("--processes", "2", "--concurrency", "5")
        return WorkerProcess(self._env, *flags, is_group=True)

    def __enter__(self) -> WorkerGroup:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if error is not None:
            print(self.read_log())
        for worker in self.workers:
            worker.__exit__(None, None, None)

    def restart_killed(self) -> None:
        for number, worker in enumerate(self.workers):
            if worker.process.poll() is not None:
                self._old_logs.append(worker.read_log())
                worker.__exit__(None, None, None)
                self.workers[number] = self._start()

    def wait_until_started(self) -> None:
        for worker in self.workers:
            worker.wait_until_started()

    def kill_child(self, rng: random.Random) -> bool:
        """Kill a child; return False if there is none to kill at the moment.

        Four times of five it is a child that runs jobs; else any, also one that is
        starting.
        """
        children = self.list_children()
        if rng.random() < 0.8:
            ready = WorkerHeartbeat.objects.filter(pid__in=children)
            children = list(ready.values_list("pid", flat=True))
        if not children:
            return False
        with suppress(ProcessLookupError):
            os.kill(rng.choice(children), signal.SIGKILL)
            return True
        return False

    def kill_supervisor(self, rng: random.Random) -> None:
        """Kill a supervisor, and start it again."""
        rng.choice(self.workers).kill()
        self.restart_killed()

    def list_children(self) -> list[int]:
        pids = [worker.process.pid for worker in self.workers]
        return [child for pid in pids for child in list_children(pid)]

    def stop(self) -> list[int]:
        """Stop all supervisors gracefully; return their exit codes."""
        self.restart_killed()
        for worker in self.workers:
            worker.signal(signal.SIGTERM)
        return [worker.wait() for worker in self.workers]

    def read_log(self) -> str:
        """Return all logs, those of killed supervisors included, without routine."""
        logs = [*self._old_logs, *(worker.read_log() for worker in self.workers)]
        return "\n".join(
            line
            for log in logs
            for line in log.splitlines()
            if not any(text in line for text in ROUTINE_LINES)
        )
