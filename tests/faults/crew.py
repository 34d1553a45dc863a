"""A crew: several supervisors at a time, started again whenever one has been killed."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from django_jobqueue.models import WorkerHeartbeat
from tests.processes import WorkerProcess, list_children

from .checker import Budgets
from .points import VARIABLE

TTL = 3.0
# How long after the last fault everything must be done.
DRAINED = TTL + 15.0
# So generous that a job dies of nothing but what the test is about.
BUDGETS = Budgets(crashes=1000, lost=1000)
SETTINGS = {
    "JOBQUEUE_HEARTBEAT_INTERVAL": "0.5",
    "JOBQUEUE_HEARTBEAT_TTL": str(TTL),
    "JOBQUEUE_MAX_CRASHES": str(BUDGETS.crashes),
    "JOBQUEUE_MAX_LOST": str(BUDGETS.lost),
    "JOBQUEUE_SHUTDOWN_TIMEOUT": "10",
}
# Lines that say of one job that all is well; an error shows without them.
CHATTER = (" job done ", " jobs done ")


class Crew:
    """Runs `runworker --processes 2` as often as asked for, until the block ends."""

    def __init__(self, env: dict[str, str], folder: Path, *, size: int = 2) -> None:
        # Files in it arm points; see points.py.
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

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            print(self.read_log())
        for worker in self.workers:
            worker.__exit__(None, None, None)

    def revive(self) -> None:
        """Start again what has been killed."""
        for number, worker in enumerate(self.workers):
            if worker.process.poll() is not None:
                self._old_logs.append(worker.read_log())
                worker.__exit__(None, None, None)
                self.workers[number] = self._start()

    def wait_until_started(self) -> None:
        for worker in self.workers:
            worker.wait_until_started()

    def kill_child(self, rng: random.Random) -> bool:
        """Kill a process that runs jobs, or one of five times any that is to; False if
        there is none at this moment."""
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
        self.revive()

    def list_children(self) -> list[int]:
        pids = [worker.process.pid for worker in self.workers]
        return [child for pid in pids for child in list_children(pid)]

    def stop(self) -> list[int]:
        """Stop all gracefully; return the exit codes."""
        self.revive()
        for worker in self.workers:
            worker.signal(signal.SIGTERM)
        return [worker.wait() for worker in self.workers]

    def read_log(self) -> str:
        """Return what was logged by all, the dead ones included, less the chatter."""
        logs = [*self._old_logs, *(worker.read_log() for worker in self.workers)]
        return "\n".join(
            line
            for log in logs
            for line in log.splitlines()
            if not any(words in line for words in CHATTER)
        )
