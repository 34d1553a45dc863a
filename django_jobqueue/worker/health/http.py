"""HealthServer: answers /live and /ready by HTTP, for container orchestrators.

Its own threads answer from memory: a probe never waits for the database. Used by
HealthReporter.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from ...exceptions import ConfigurationError

# Requests that are open at a time. With one more, the oldest is dropped: clients that
# send nothing cannot block others.
MAX_REQUESTS = 16
# How long a client may send nothing.
CLIENT_TIMEOUT_SECONDS = 5.0

Answer = tuple[HTTPStatus, dict[str, Any]]


class HealthServer:
    """A small HTTP server with one callable per path."""

    def __init__(
        self, host: str, port: int, *, answers: dict[str, Callable[[], Answer]]
    ) -> None:
        try:
            self._server = _make_server(host, port)
        except OSError as error:
            raise ConfigurationError(
                f"The health endpoint cannot listen on {host!r}, port {port}: {error}. "
                f"Choose another --health-port or --health-host."
            ) from error
        self._server.answers = answers
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(0.1,),
            name="jobqueue-probes",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _make_server(host: str, port: int) -> _Server:
    [family, *_, address] = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    kind = type("_Server", (_Server,), {"address_family": family})
    made: _Server = kind(address, _Handler)
    return made


# Not HTTPServer: it looks up the host's name in DNS when it starts.
class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    answers: dict[str, Callable[[], Answer]]

    def __init__(self, *args: Any) -> None:
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.append(request)
            oldest = self._open.pop(0) if len(self._open) > MAX_REQUESTS else None
        if oldest is not None:
            # It may have ended at this moment.
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            if request in self._open:
                self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client may disconnect at any time."""


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_TIMEOUT_SECONDS
    server: _Server
    # Do not show versions.
    server_version = "jobqueue"
    sys_version = ""

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path.partition("?")[0])
        if answer is None:
            known = " and ".join(self.server.answers)
            status, document = HTTPStatus.NOT_FOUND, {"error": f"There is {known}."}
        else:
            status, document = answer()
        body = json.dumps(document).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing for a probe."""
