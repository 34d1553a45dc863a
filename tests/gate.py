"""A gate in front of the database: while it is shut, workers cannot reach it.

The test itself does not go through the gate: it can read the rows meanwhile.
"""

from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol
from urllib.parse import urlsplit

from django.conf import settings

from tests.proxy import shut_down


class Gate(Protocol):
    """The interface for tests; `env` is the environment of the workers."""

    env: dict[str, str]

    def shut(self) -> None: ...

    def open(self) -> None: ...


@contextmanager
def make_gate(worker_env: dict[str, str]) -> Iterator[Gate]:
    """Put an open gate in front of the test database."""
    if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        lock = FileGate(worker_env)
        try:
            yield lock
        finally:
            lock.close()
    else:
        with make_tcp_gate(worker_env) as gate:
            yield gate


@contextmanager
def make_tcp_gate(worker_env: dict[str, str]) -> Iterator[TcpGate]:
    gate = TcpGate(worker_env)
    try:
        yield gate
    finally:
        gate.close()


class TcpGate:
    """A TCP proxy in front of PostgreSQL; shut, it refuses and cuts connections."""

    def __init__(self, worker_env: dict[str, str]) -> None:
        url = urlsplit(worker_env["DATABASE_URL"])
        self._target = (url.hostname or "127.0.0.1", url.port or 5432)
        # Bound until close() and never listened on: it reserves the port.
        self._reserved = _bind(0)
        self.port: int = self._reserved.getsockname()[1]
        user, at, _ = url.netloc.rpartition("@")
        netloc = f"{user}{at}127.0.0.1:{self.port}"
        self.env = {**worker_env, "DATABASE_URL": url._replace(netloc=netloc).geturl()}
        # Clients and messages of either side that wait for the end of silence().
        self.waiting = 0
        self._flows = threading.Event()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.open()

    def open(self) -> None:
        """Pass everything on, including data held back by silence()."""
        self._flows.set()
        if self._listener is None:
            self._listener = _bind(self.port)
            self._listener.listen(128)
            threading.Thread(
                target=self._accept, args=(self._listener,), daemon=True
            ).start()

    def shut(self) -> None:
        """Cut all connections and refuse new ones."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # close() alone would not wake the thread in accept().
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()
        self._flows.set()

    def cut(self) -> None:
        """Cut all connections; new ones are accepted."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            shut_down(each)

    def silence(self) -> None:
        """Hold back all data without closing connections: a pulled cable."""
        self._flows.clear()

    def close(self) -> None:
        self.shut()
        self._reserved.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._wait_for_flow()
        with client, suppress(OSError), socket.create_connection(self._target) as peer:
            with self._lock:
                if self._listener is None:
                    return
                self._sockets += [client, peer]
            back = threading.Thread(
                target=self._pass_on, args=(peer, client), daemon=True
            )
            back.start()
            self._pass_on(client, peer)
            back.join()

    def _wait_for_flow(self) -> None:
        with self._lock:
            self.waiting += 1
        self._flows.wait()
        with self._lock:
            self.waiting -= 1

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._wait_for_flow()
                target.sendall(data)
        shut_down(source)
        shut_down(target)


class FileGate:
    """For SQLite; shut, another connection holds the lock that every writer needs."""

    def __init__(self, worker_env: dict[str, str]) -> None:
        self.env = worker_env
        self._connection = sqlite3.connect(
            worker_env["JOBQUEUE_TEST_NAME_default"], isolation_level=None, timeout=30
        )

    def shut(self) -> None:
        self._connection.execute("BEGIN EXCLUSIVE")

    def open(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self.open()
        self._connection.close()


def _bind(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port))
    return bound
