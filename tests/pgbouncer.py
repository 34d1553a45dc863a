"""PgBouncer between the tests and PostgreSQL, as root or any other user.

Its binary is the installed one, else that of Debian's package, which is downloaded and
unpacked below .venvs/pgbouncer, without root. If neither works, find_pgbouncer() raises
RuntimeError, and the summary of conftest.py says that these tests were not run.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from tests.postgres import as_server_user, find_free_port, make_server_directory
from tests.venvs import VENVS

UNPACKED = VENVS / "pgbouncer"
START_SECONDS = 20


class PgBouncer:
    """A pooler in front of the server at `url`, for the duration of a `with` block."""

    def __init__(self, url: str, *, mode: str, size: int = 20) -> None:
        self._server = urlsplit(url)
        self._mode = mode
        self._size = size
        self._directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> PgBouncer:
        self._directory = make_server_directory()
        binary = find_pgbouncer()
        # The server's user may have no access to the folder it was unpacked to.
        for file in [binary, *binary.parent.glob("*.so*")]:
            shutil.copy(file, self._directory)
        self.port = find_free_port()
        (self._directory / "ini").write_text(self._configure())
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._directory / "pgbouncer", self._directory / "ini"],
                env={**os.environ, "LD_LIBRARY_PATH": str(self._directory)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **as_server_user(),
            )
        self._wait_until_ready(self._process)
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}{self._server.path}"

    def _configure(self) -> str:
        server = self._server
        names = {"host": server.hostname, "port": server.port or 5432}
        names |= {"user": server.username, "password": server.password}
        given = " ".join(f"{key}={value}" for key, value in names.items() if value)
        return (
            f"[databases]\n* = {given}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\n"
            f"auth_type = any\nunix_socket_dir =\nmax_client_conn = 500\n"
            f"pool_mode = {self._mode}\ndefault_pool_size = {self._size}\n"
        )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        log = self._directory / "log"
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if "process up" in log.read_text():
                return
            time.sleep(0.02)
        process.kill()
        raise AssertionError(f"PgBouncer did not start:\n{log.read_text()}")


@functools.cache
def find_pgbouncer() -> Path:
    """Return the binary, downloaded if necessary; its libraries are beside it."""
    for folder in [*os.get_exec_path(), "/usr/sbin"]:
        if _runs(Path(folder) / "pgbouncer"):
            return Path(folder) / "pgbouncer"
    unpacked = UNPACKED / "pgbouncer"
    if not _runs(unpacked):
        try:
            _download(UNPACKED)
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeError(f"PgBouncer cannot be installed: {error}") from None
    if not _runs(unpacked):
        raise RuntimeError("PgBouncer cannot be installed: its binary does not run.")
    return unpacked


def _runs(binary: Path) -> bool:
    env = {**os.environ, "LD_LIBRARY_PATH": str(binary.parent)}
    try:
        return not subprocess.run(
            [binary, "--version"], env=env, capture_output=True
        ).returncode
    except OSError:
        return False


def _download(target: Path) -> None:
    """Unpack the package, and the libraries that a minimal system lacks."""
    with tempfile.TemporaryDirectory(prefix="jobqueue-pgbouncer-") as name:
        directory = Path(name)
        try:
            _fetch(directory, [])
        except subprocess.SubprocessError:
            # Package lists are missing or outdated: download them into this folder.
            (directory / "lists" / "partial").mkdir(parents=True)
            (directory / "cache").mkdir()
            own = ["-o", f"Dir::State::Lists={directory / 'lists'}"]
            own += ["-o", f"Dir::Cache={directory / 'cache'}"]
            _run(["apt-get", *own, "update"], directory)
            _fetch(directory, own)
        for package in directory.glob("*.deb"):
            _run(["dpkg", "-x", str(package), "unpacked"], directory)
        target.mkdir(parents=True, exist_ok=True)
        unpacked = directory / "unpacked"
        for file in [*unpacked.rglob("sbin/pgbouncer"), *unpacked.rglob("lib*.so.*")]:
            shutil.copy(file, target)


def _fetch(directory: Path, options: list[str]) -> None:
    found = _run(["apt-cache", *options, "depends", "pgbouncer"], directory)
    libraries = re.findall(r"Depends: (lib(?:c-?ares|event)[\w.+-]*)", found)
    _run(["apt-get", *options, "download", "pgbouncer", *libraries], directory)


def _run(command: list[str], directory: Path) -> str:
    return subprocess.run(
        command, cwd=directory, check=True, capture_output=True, text=True, timeout=120
    ).stdout
