"""CaseRunner: runs hostile cases one after the other in one worker.

A worker that a case has harmed is killed and the next case gets a new one. So each
finding belongs to one case.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from django.db import OperationalError

from django_jobqueue import JobSpec
from django_jobqueue.models import WorkerHeartbeat
from tests.processes import WorkerProcess, is_alive, list_children
from tests.waiting import wait_until

from ..heartbeats import wait_for_heartbeats
from .measurements import read_cpu_seconds, read_resident_bytes
from .other_jobs import (
    delete_all_rows,
    delete_other_jobs,
    enqueue_healthy,
    find_unhealthy,
    insert_unrelated,
    read_unrelated,
)

PROCESSES = 2
CONCURRENCY = 4
# Enough for two busy cores, and for a child that must be replaced.
SETTLE_SECONDS = 15.0
STOP_SECONDS = 20.0
# An error of the worker that is logged more often for one case is a loop.
MAX_REPEATS = 20
# The part of one core that an idle child may use.
IDLE_SHARE = 0.5
CONSTANTS = "JOBQUEUE_TEST_CONSTANTS"
SETTINGS = {
    "JOBQUEUE_HEARTBEAT_INTERVAL": "0.5",
    "JOBQUEUE_HEARTBEAT_TTL": "3",
    "JOBQUEUE_GRACE": "0.5",
    "JOBQUEUE_SHUTDOWN_TIMEOUT": "3",
    "JOBQUEUE_POLL_INTERVAL": "0.2",
    "JOBQUEUE_BACKOFF_BASE": "0.05",
    "JOBQUEUE_UNKNOWN_HANDLER_GRACE": "0.2",
    # They replace a minute and five seconds.
    CONSTANTS: "maintenance.RARE_WORK_SECONDS=0.4 "
    "supervision.process_pool.LONGEST_PAUSE_SECONDS=0.25",
}


class Case(Protocol):
    """One hostile input."""

    @property
    def name(self) -> str: ...

    def inject(self, runner: CaseRunner) -> None:
        """Send the hostile input."""

    def find_violations(self, runner: CaseRunner) -> list[str]:
        """Return broken promises; called until there are none, or time is up."""


class CaseRunner:
    """A worker with healthy jobs beside each case, and unrelated rows."""

    def __init__(self, env: dict[str, str], folder: Path, **variables: str) -> None:
        self.folder = folder
        self.worker: WorkerProcess | None = None
        # The healthy jobs of the current case.
        self.healthy: list[JobSpec] = []
        self.cases = 0
        self._env = {**env, **SETTINGS, **variables}
        self._unrelated = ""
        # How many bytes of the log belong to earlier cases.
        self._offset = 0

    def __enter__(self) -> CaseRunner:
        delete_all_rows()
        insert_unrelated()
        self._unrelated = read_unrelated()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._end_worker()
        _retry(delete_all_rows)

    def run_case(self, case: Case) -> list[str]:
        """Run one case; return its findings, with the end of the log."""
        self.cases += 1
        worker = self._ensure_worker()
        self._offset = worker.log.stat().st_size
        findings = [*self._inject_and_check(case), *self._check_worker()]
        if findings:
            # Not a separate finding: `make faults` counts them.
            findings[-1] += f"\nend of the log:\n{self._read_tail()}"
            self._end_worker()
        _retry(delete_other_jobs)
        return findings

    def stop(self) -> list[str]:
        """Stop the worker as a deployment would; return findings."""
        worker = self._ensure_worker()
        children = list_children(worker.process.pid)
        try:
            code = worker.stop(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            left = list_children(worker.process.pid)
            return [f"not stopped after {STOP_SECONDS:g} s; children: {left}"]
        left = _wait_until_none(
            lambda: [f"child {pid} is left" for pid in children if is_alive(pid)], 5.0
        )
        return [*([f"stopped with code {code}"] if code else []), *left]

    def restart_children(self) -> list[int]:
        """Ask for a graceful restart; return the children that must exit."""
        assert self.worker is not None
        children = list_children(self.worker.process.pid)
        self.worker.signal(signal.SIGHUP)
        return children

    def find_busy_children(self, beats: int = 4) -> list[str]:
        """Return a finding for each child that uses CPU with nothing to do."""
        assert self.worker is not None
        children = list_children(self.worker.process.pid)
        before = {pid: read_cpu_seconds(pid) for pid in children}
        began = time.monotonic()
        wait_for_heartbeats(beats)
        seconds = time.monotonic() - began
        shares = {
            pid: (read_cpu_seconds(pid) - cpu) / seconds
            for pid, cpu in before.items()
            if is_alive(pid)
        }
        return [
            f"child {pid} uses {share:.0%} of a core while idle"
            for pid, share in shares.items()
            if share > IDLE_SHARE
        ]

    def read_log(self) -> str:
        """Return what was logged since the case began."""
        assert self.worker is not None
        with self.worker.log.open("rb") as log:
            log.seek(self._offset)
            return log.read().decode(errors="replace")

    def read_memory(self) -> int:
        """Return the resident bytes of all children."""
        assert self.worker is not None
        return sum(map(read_resident_bytes, list_children(self.worker.process.pid)))

    def _inject_and_check(self, case: Case) -> list[str]:
        try:
            case.inject(self)
        # A wait timed out.
        except AssertionError as error:
            return [str(error)]
        self.healthy = enqueue_healthy()
        findings = self._wait_until_none(lambda: find_unhealthy(self.healthy))
        return findings or self._wait_until_none(lambda: case.find_violations(self))

    def _ensure_worker(self) -> WorkerProcess:
        if self.worker is None or self.worker.process.poll() is not None:
            self._end_worker()
            flags = ["--processes", str(PROCESSES), "--concurrency", str(CONCURRENCY)]
            self.worker = WorkerProcess(self._env, *flags)
            self.worker.wait_until_started()
            wait_until(_are_ready)
        return self.worker

    def _end_worker(self) -> None:
        if self.worker is not None:
            self.worker.__exit__(None, None, None)
            self.worker = None
            _retry(WorkerHeartbeat.objects.all().delete)

    def _check_worker(self) -> list[str]:
        findings = self._wait_until_none(self._find_odd_processes)
        unrelated = read_unrelated()
        if unrelated != self._unrelated:
            findings.append(f"an unrelated row has changed:\n{unrelated}")
        settings = WorkerHeartbeat.objects.values_list("concurrency", "queues")
        # One process is for suspects only, and runs one job at a time.
        odd = [each for each in settings if each not in ((CONCURRENCY, {}), (1, {}))]
        findings += [f"a worker has other settings: {each}" for each in odd]
        return findings + _find_repeated(self.read_log())

    def _wait_until_none(self, find: Callable[[], Sequence[str]]) -> list[str]:
        """Wait until nothing is found; give up at once if the worker has exited."""
        assert self.worker is not None
        process = self.worker.process
        return _wait_until_none(
            find, SETTLE_SECONDS, is_hopeless=lambda: process.poll() is not None
        )

    def _find_odd_processes(self) -> list[str]:
        assert self.worker is not None
        code = self.worker.process.poll()
        if code is not None:
            return [f"the supervisor has ended with code {code}"]
        count = len(list_children(self.worker.process.pid))
        # One more for suspects, which is kept.
        if PROCESSES <= count <= PROCESSES + 1:
            return []
        return [f"there are {count} children, not {PROCESSES}"]

    def _read_tail(self, lines: int = 12) -> str:
        is_routine = re.compile(r" jobs? done |a line of many").search
        log = [line for line in self.read_log().splitlines() if not is_routine(line)]
        return "\n".join(line[:300] for line in log[-lines:])


def run_cases(runner: CaseRunner, cases: Iterable[Case]) -> dict[str, list[str]]:
    """Run the cases in turn; return the findings by the names of the cases."""
    results = {}
    for case in cases:
        began = time.monotonic()
        results[case.name] = runner.run_case(case)
        # Shown by `pytest -s` and `make faults`.
        seconds = time.monotonic() - began
        count = len(results[case.name])
        print(f"[{seconds:4.1f} s] {case.name}: {count} findings", flush=True)
        for finding in results[case.name]:
            print(f"  {finding}", flush=True)
    return results


def _wait_until_none(
    find: Callable[[], Sequence[str]],
    seconds: float,
    *,
    is_hopeless: Callable[[], bool] = lambda: False,
) -> list[str]:
    """Wait until nothing is found; return what is still found at the deadline."""
    found: Sequence[str] = ()

    def is_over() -> bool:
        nonlocal found
        # Read first: what is found after the exit is final.
        is_last = is_hopeless()
        found = find()
        return is_last or not found

    try:
        wait_until(is_over, timeout=seconds)
    except AssertionError:
        return [f"{text} (after {seconds:g} s)" for text in found]
    return list(found)


def _retry(change: Callable[[], object]) -> None:
    """Retry a change of rows that a worker may change at the same time."""

    def is_done() -> bool:
        try:
            change()
        # A deadlock, or the lock of SQLite.
        except OperationalError:
            return False
        return True

    wait_until(is_done)


def _are_ready() -> bool:
    return WorkerHeartbeat.objects.count() >= PROCESSES


def _find_repeated(log: str) -> list[str]:
    """Return errors of the worker's own loops that are logged repeatedly."""
    lines = re.findall(r"(?:ERROR|WARNING) (.*(?:error in the|trying again).*)", log)
    return [
        f"logged {count} times: {text[:200]}"
        for text, count in Counter(lines).items()
        if count > MAX_REPEATS
    ]
