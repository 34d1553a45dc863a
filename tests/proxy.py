"""A TCP proxy in front of PostgreSQL that cuts connections where it hurts."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class CuttingProxy:
    """Passes everything on, until a reply contains `marker`: that one is swallowed.

    The server has done what it was asked for, and the client never hears of it.
    """

    def __init__(self, host: str, port: int) -> None:
        self.marker: bytes | None = None
        self.cuts = 0
        self._target = (host, port)
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.close()
        for each in self._sockets:
            each.close()

    def cut_once(self, marker: bytes) -> None:
        """Cut the first reply that contains the marker."""
        with self._lock:
            self.marker = marker

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            for source, target, is_reply in (
                (client, server, False),
                (server, client, True),
            ):
                threading.Thread(
                    target=self._pass_on, args=(source, target, is_reply), daemon=True
                ).start()

    def _pass_on(
        self, source: socket.socket, target: socket.socket, is_reply: bool
    ) -> None:
        try:
            while data := source.recv(65536):
                if is_reply and self._is_to_be_cut(data):
                    break
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _is_to_be_cut(self, data: bytes) -> bool:
        with self._lock:
            if self.marker is None or self.marker not in data:
                return False
            self.marker = None
            self.cuts += 1
            return True
