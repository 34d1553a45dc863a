"""One system under measurement: its agent, its database, its workers.

The agent (see agent.py) enqueues and polls; the workers (see workers.py) run the jobs.
Each runs in separate processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from benchmarks import installs
from benchmarks.catalog import Peer
from benchmarks.processes import die_with_parent
from benchmarks.system import Unsupported
from benchmarks.workers import STOP_SECONDS, Failed, Workers
from tests.venvs import ROOT

ANSWER_SECONDS = 900

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
# Counts user tables only: autovacuum writes to the catalogue.
COUNT_WRITES = """
    SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)
    FROM pg_stat_user_tables
"""


@dataclass(frozen=True, slots=True)
class Servers:
    """Addresses of the servers, and a folder for files; `redis` may be a reason."""

    postgres: str
    redis: str
    redis_is_missing: str
    folder: Path


class System:
    """Measure one peer, between entering and leaving the `with` block."""

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
            # Redis systems need one too: the `write` job writes to PostgreSQL.
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
        """Have the agent call a method of the adapter; raise Failed if it failed."""
        assert self._agent
        assert self._agent.stdin
        assert self._agent.stdout
        question = json.dumps({"do": method, "with": arguments})
        try:
            print(question, file=self._agent.stdin, flush=True)
        except OSError:
            raise Failed(f"its agent has exited: {self._last_output()}") from None
        if not select.select([self._agent.stdout], [], [], ANSWER_SECONDS)[0]:
            self._agent.kill()
            raise Failed(f"no answer to {method} in {ANSWER_SECONDS} s")
        answer = json.loads(self._agent.stdout.readline() or "{}")
        if "unsupported" in answer:
            raise Unsupported(answer["unsupported"])
        if "value" not in answer:
            error = answer.get("error") or self._last_output()
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
        """Run workers for the block, wrapped in another command if one is given."""
        how = {"processes": processes, "concurrency": concurrency, "handler": handler}
        commands = [
            [*wrapped_in, *command] for command in self.call("worker_commands", **how)
        ]
        extra = self.call("worker_environment", **how)
        records = Path(tempfile.mkdtemp(prefix="record-", dir=self.folder))
        variables = {
            **self._environment(),
            **extra,
            **environment,
            "BENCH_RECORD": str(records),
        }
        workers = Workers(commands, variables, records)
        try:
            yield workers
        finally:
            workers.stop()

    def tidy(self) -> None:
        """Vacuum and analyze: no system pays for the dead rows of the one before."""
        if self.peer.store == "postgresql":
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")

    def count_queries(self) -> tuple[int, int]:
        """Return the number of statements and rows written so far by this system."""
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

    def _last_output(self) -> str:
        text = (self.folder / "agent.log").read_text(errors="replace").strip()
        return text.splitlines()[-1] if text else "no output"


def _count_redis_commands(url: str) -> int:
    parts = urlsplit(url)
    address = (parts.hostname or "", parts.port or 0)
    with socket.create_connection(address) as connection:
        connection.sendall(b"INFO stats\r\n")
        text = connection.recv(65536).decode()
    return int(text.partition("total_commands_processed:")[2].split()[0])


def say(text: str) -> None:
    """Print a line and flush."""
    print(text, flush=True)
    sys.stdout.flush()
