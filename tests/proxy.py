"""A TCP proxy in front of PostgreSQL that cuts connections at chosen messages."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any


@dataclass(slots=True)
class Cut:
    """A rule: which message to cut, and how many times."""

    marker: bytes
    is_reply: bool
    times: int = 1
    # Messages with the marker to let through before each cut.
    spare: int = 0
    # Applies only to connections that have carried this before.
    after: bytes = b""
    # How many clients to refuse after the cut: a short outage.
    then_refuse: int = 0
    spared: int = 0

    def hits(self, data: bytes, *, seen: set[bytes]) -> bool:
        if not self.times or self.marker not in data:
            return False
        if self.after and self.after not in seen:
            return False
        if self.spared < self.spare:
            self.spared += 1
            return False
        self.times -= 1
        self.spared = 0
        return True


class CuttingProxy:
    """Passes everything on, except a message that contains a marker.

    Without its reply, the server has executed the statement and the client does not
    know. Without its request, the server sees only that the client disconnected.
    """

    def __init__(self, host: str, port: int) -> None:
        self.cuts = 0
        # True: all clients are refused, as if the server were down.
        self._is_down = False
        self._rules: list[Cut] = []
        self._refusals = 0
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
            # close() alone neither wakes a reading thread nor notifies the peer.
            shut_down(each)
            each.close()

    def cut_once(self, marker: bytes) -> None:
        """Drop the first reply that contains the marker, and its connection."""
        self.cut_replies(marker)

    def cut_replies(self, marker: bytes, **how: Any) -> None:
        """Drop replies with the marker, and their connections; `how`: see Cut."""
        with self._lock:
            self._rules.append(Cut(marker, is_reply=True, **how))

    def cut_requests(self, marker: bytes, **how: Any) -> None:
        """Drop requests with the marker, and their connections; `how`: see Cut."""
        with self._lock:
            self._rules.append(Cut(marker, is_reply=False, **how))

    def go_away(self) -> None:
        """Cut all connections and refuse new ones, until come_back()."""
        with self._lock:
            self._is_down = True
            sockets = list(self._sockets)
        for each in sockets:
            shut_down(each)

    def come_back(self) -> None:
        with self._lock:
            self._is_down = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_refused():
                client.close()
                continue
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            # The `after` markers of rules that this connection has carried.
            seen: set[bytes] = set()
            for source, target, is_reply in (
                (client, server, False),
                (server, client, True),
            ):
                threading.Thread(
                    target=self._pass_on,
                    args=(source, target, is_reply, seen),
                    daemon=True,
                ).start()

    def _is_refused(self) -> bool:
        with self._lock:
            is_refused = self._refusals > 0
            self._refusals -= is_refused
            return is_refused or self._is_down

    def _pass_on(
        self,
        source: socket.socket,
        target: socket.socket,
        is_reply: bool,
        seen: set[bytes],
    ) -> None:
        try:
            while data := source.recv(65536):
                if self._is_to_be_cut(data, is_reply, seen):
                    break
                target.sendall(data)
        except OSError:
            pass
        shut_down(source)
        shut_down(target)

    def _is_to_be_cut(self, data: bytes, is_reply: bool, seen: set[bytes]) -> bool:
        with self._lock:
            seen.update(rule.after for rule in self._rules if rule.after in data)
            for rule in self._rules:
                if rule.is_reply == is_reply and rule.hits(data, seen=seen):
                    self.cuts += 1
                    self._refusals = rule.then_refuse
                    return True
            return False


def shut_down(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
