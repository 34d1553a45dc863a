"""One system while it is measured: its agent, its database, its workers.

The agent (see agent.py) enqueues and looks; the workers are started here, as processes
of their own, so that their processor time and memory can be read and nothing of them
outlives the measurement.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import installs, record
from benchmarks.catalog import Peer
from benchmarks.processes import (
    die_with_parent,
    memory_megabytes,
    processor_seconds,
    session_of,
    tree,
)
from benchmarks.system import Unsupported
from tests.venvs import ROOT

ANSWER_SECONDS = 900
STOP_SECONDS = 15
LOOK_SECONDS = 0.02
STALL_SECONDS = 0.5
# Look closely when so few are left.
LAST_CALLS = 64


class Failed(Exception):
    """A system did not do what it was asked; the text says what happened."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Where the servers are, and a folder for files; `redis` may be a reason."""

    postgres: str
    redis: str
    redis_is_missing: str
    folder: Path


class System:
    """The measuring side of one peer, between `with` and the end of the block."""

    def __init__(self, peer: Peer, servers: Servers) -> None:
        self.peer = peer
        self.servers = servers
        self.database = f"jobqueue_bench_{peer.name}"
        self.folder = servers.folder / peer.name
        self._agent: subprocess.Popen[str] | None = None

    def __enter__(self) -> System:
        self.folder.mkdir(parents=True)
        if self.peer.store == "redis" and not self.servers.redis:
            raise Failed(self.servers.redis_is_missing)
        if self.peer.store != "sqlite":
            # Also beside redis: the `write` job writes to PostgreSQL.
            self._make_database()
        self._agent = self._start_agent()
        self.call("prepare")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._agent:
            self._agent.stdin.close()  # type: ignore[union-attr]
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._agent.wait(STOP_SECONDS)
            self._agent.kill()
            self._agent.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.peer.store != "sqlite":
            with psycopg.connect(self.servers.postgres, autocommit=True) as connection:
                connection.execute(f'DROP DATABASE "{self.database}" WITH (FORCE)')

    @property
    def url(self) -> str:
        """Return the address of the system's own database."""
        if self.peer.store == "sqlite":
            return f"sqlite://{self.folder / 'jobs.sqlite3'}"
        return self.servers.postgres.rpartition("/")[0] + f"/{self.database}"

    def call(self, method: str, **arguments: Any) -> Any:
        """Have the agent call a method of the adapter; raise what it raised."""
        assert self._agent
        assert self._agent.stdin
        assert self._agent.stdout
        question = json.dumps({"do": method, "with": arguments})
        try:
            print(question, file=self._agent.stdin, flush=True)
        except OSError:
            raise Failed(f"its agent has ended: {self._last_words()}") from None
        if not select.select([self._agent.stdout], [], [], ANSWER_SECONDS)[0]:
            self._agent.kill()
            raise Failed(f"no answer to {method} in {ANSWER_SECONDS} s")
        answer = json.loads(self._agent.stdout.readline() or "{}")
        if "unsupported" in answer:
            raise Unsupported(answer["unsupported"])
        if "value" not in answer:
            error = answer.get("error") or self._last_words()
            raise Failed(f"{method}: {error.strip().splitlines()[-1]}")
        return answer["value"]

    @contextlib.contextmanager
    def workers(
        self,
        *,
        processes: int = 1,
        concurrency: int | None = None,
        handler: str = "nothing",
        wrapped_in: tuple[str, ...] = (),
        **environment: str,
    ) -> Iterator[Workers]:
        """Run workers for the block, inside another command if one is given."""
        how = {"processes": processes, "concurrency": concurrency, "handler": handler}
        commands = [
            [*wrapped_in, *command] for command in self.call("worker_commands", **how)
        ]
        extra = self.call("worker_environment", **how)
        records = Path(tempfile.mkdtemp(prefix="record-", dir=self.folder))
        surroundings = {
            **self._environment(),
            **extra,
            **environment,
            "BENCH_RECORD": str(records),
        }
        workers = Workers(commands, surroundings, records)
        try:
            yield workers
        finally:
            workers.stop()

    def tidy(self) -> None:
        """Vacuum and analyze, so that no system pays for the one before."""
        if self.peer.store == "postgresql":
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")

    def count_queries(self) -> tuple[int, int]:
        """Return the statements and the rows written so far by this system."""
        if self.peer.store == "redis":
            return _count_redis_commands(self.servers.redis), 0
        if self.peer.store == "sqlite":
            raise Unsupported("SQLite counts nothing")
        with psycopg.connect(self.servers.postgres, autocommit=True) as connection:
            try:
                found = connection.execute(COUNT_STATEMENTS, [self.database])
            except psycopg.Error:
                found = connection.execute(COUNT_TRANSACTIONS, [self.database])
            [[statements]] = found.fetchall()
        with psycopg.connect(self.url, autocommit=True) as connection:
            [[rows]] = connection.execute(COUNT_WRITES).fetchall()
        return int(statements), int(rows)

    def _make_database(self) -> None:
        with psycopg.connect(self.servers.postgres, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{self.database}"')
            connection.execute(f'CREATE DATABASE "{self.database}"')

    def _start_agent(self) -> subprocess.Popen[str]:
        if self.peer.node:
            program = ROOT / "benchmarks" / "node" / f"{self.peer.adapter}.mjs"
            command = ["node", str(program), "agent"]
        else:
            python = installs.python_of(self.peer)
            command = [python, "-m", "benchmarks.agent", self.peer.adapter]
        with (self.folder / "agent.log").open("wb") as log:
            return subprocess.Popen(
                command,
                env={**self._environment(), "BENCH_RECORD": str(self.folder)},
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            **dict(self.peer.environment),
            "PYTHONPATH": str(ROOT),
            "NODE_PATH": str(installs.NODE / "node_modules"),
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
            "DATABASE_URL": self.url,
            "REDIS_URL": self.servers.redis,
            "BENCH_SYSTEM": self.peer.adapter,
        }

    def _last_words(self) -> str:
        text = (self.folder / "agent.log").read_text(errors="replace").strip()
        return text.splitlines()[-1] if text else "without a word"


COUNT_STATEMENTS = """
    SELECT coalesce(sum(calls), 0)
    FROM pg_stat_statements
    WHERE dbid = (SELECT oid FROM pg_database WHERE datname = %s)
    AND query NOT LIKE '%%pg_stat_user_tables%%'
"""
COUNT_TRANSACTIONS = """
    SELECT xact_commit + xact_rollback
    FROM pg_stat_database
    WHERE datname = %s
"""
# Not of the whole database: autovacuum writes to the catalogue.
COUNT_WRITES = """
    SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)
    FROM pg_stat_user_tables
"""


def _count_redis_commands(url: str) -> int:
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    address = (parts.hostname or "", parts.port or 0)
    with socket.create_connection(address) as connection:
        connection.sendall(b"INFO stats\r\n")
        text = connection.recv(65536).decode()
    return int(text.partition("total_commands_processed:")[2].split()[0])


class Workers:
    """The processes of one system that run jobs."""

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
        """Return all processes, those that the commands have started included."""
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
        """Wait until handlers have been called so often; raise Failed otherwise."""
        deadline = time.monotonic() + seconds
        while (sample := self.sample()).calls < count:
            self.check()
            if time.monotonic() > deadline:
                raise Failed(f"{sample.calls} of {count} jobs ran in {seconds:.0f} s")
            time.sleep(LOOK_SECONDS / 4)
        return sample

    def check(self) -> None:
        """Raise Failed if a worker has ended."""
        for process in self._processes:
            if process.poll() is not None:
                words = (self.records / "log").read_text(errors="replace").split("\n")
                last = next((line for line in reversed(words) if line.strip()), "")
                raise Failed(f"a worker ended with {process.returncode}: {last}")

    def stop(self) -> None:
        """End all workers, by force if they do not go."""
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
            # Numbers are used again: only what still is of our own sessions.
            with contextlib.suppress(OSError):
                if session_of(pid) in sessions:
                    os.kill(pid, signal.SIGKILL)
        self._log.close()


@dataclass(frozen=True, slots=True)
class Drain:
    """How a queue was emptied: when how many jobs had run, in seconds."""

    curve: tuple[tuple[float, int], ...]
    begun: float
    ended: float
    is_complete: bool
    memory: tuple[float, float]

    @property
    def calls(self) -> int:
        return self.curve[-1][1]

    @property
    def rate(self) -> float:
        """Return jobs a second, from when every process took part to the last end."""
        done = self.calls - calls_at(self.curve, self.begun)
        return done / max(self.ended - self.begun, 1e-9)

    def tenth(self, number: int) -> float:
        """Return jobs a second within the first (1) … last (10) tenth of the jobs."""
        low = self.calls * (number - 1) // 10
        high = self.calls * number // 10
        took = moment_of(self.curve, high) - moment_of(self.curve, low)
        return (high - low) / max(took, 1e-9)


def calls_at(curve: tuple[tuple[float, int], ...], moment: float) -> float:
    """Return how many jobs had run at a moment, between two looks by proportion."""
    before = curve[0]
    for point in curve:
        if point[0] >= moment:
            span = point[0] - before[0]
            share = (moment - before[0]) / span if span else 1.0
            return before[1] + (point[1] - before[1]) * share
        before = point
    return curve[-1][1]


def moment_of(curve: tuple[tuple[float, int], ...], calls: float) -> float:
    """Return when so many jobs had run, between two looks by proportion."""
    before = curve[0]
    for point in curve:
        if point[1] >= calls:
            rise = point[1] - before[1]
            share = (calls - before[1]) / rise if rise else 1.0
            return before[0] + (point[0] - before[0]) * share
        before = point
    return curve[-1][0]


def watch_drain(
    system: System, workers: Workers, *, count: int, processes: int, seconds: float
) -> Drain:
    """Look on while workers empty a queue, for so many seconds after the first job.

    While jobs run only counters in shared memory are read. When all have run, or none
    runs any more, the system is asked whether their ends are written too: some forget
    a job when it starts, and threads that overtake each other may miss a count.
    """
    first = workers.wait_for_calls(1, seconds=60 + seconds)
    start = first.begun[0] / 1e9
    curve: list[tuple[float, int]] = [(start, 0)]
    early = 0.0
    changed = time.monotonic()
    is_complete = False
    while True:
        sample = workers.sample()
        now = sample.moment / 1e9
        if sample.calls != curve[-1][1]:
            changed = now
        curve.append((now, sample.calls))
        if not early and sample.calls >= count // 10:
            early = workers.memory()
        is_late = now - start > seconds
        is_still = now - changed > STALL_SECONDS
        is_near = sample.calls >= count - LAST_CALLS or is_still
        if (sample.calls >= count or is_still) and not system.call("has_work"):
            is_complete = True
        if is_complete or is_late:
            break
        workers.check()
        time.sleep(LOOK_SECONDS / 4 if is_near else LOOK_SECONDS)
    sample = workers.sample()
    ended = time.monotonic()
    if is_complete and is_still:
        # It was over before anybody asked.
        ended = changed
    curve.append((max(ended, curve[-1][0]), sample.calls))
    begun = _when_all_take_part(sample, curve, processes)
    memory = (early, workers.memory())
    return Drain(tuple(curve), begun, ended, is_complete, memory)


def _when_all_take_part(
    sample: record.Sample, curve: list[tuple[float, int]], processes: int
) -> float:
    """Return when the last process began, unless half of the work was done by then."""
    last = sample.begun[: max(processes, 1)][-1] / 1e9
    if calls_at(tuple(curve), last) > sample.calls / 2:
        return curve[0][0]
    return last


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)
    sys.stdout.flush()
