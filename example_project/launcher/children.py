"""Child: one management command in a separate process, with its log in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
# A child that exits sooner would exit again: it is not restarted.
SHORT_LIFE_SECONDS = 5.0
LAST_LINES = 8


class ChildFailed(Exception):
    """A child exited right after its start."""


class Child:
    """A running command. It stops with the demo (see child.py) or when interrupted."""

    def __init__(self, name: str, arguments: list[str], *, log: Path) -> None:
        self.name = name
        self._arguments = arguments
        self._log = log
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def restart_if_exited(self) -> str:
        """Restart it if it has exited; return how it ended. Raises ChildFailed."""
        code = self._process.poll()
        if code is None:
            return ""
        end = f"The {self.name} {_describe_end(code)}."
        if time.monotonic() - self._started < SHORT_LIFE_SECONDS:
            raise ChildFailed(f"{end}\n{self._read_last_lines()}")
        self._close()
        self._start()
        return end

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def wait(self, seconds: float) -> bool:
        """Wait until it exits; return whether it exited without being killed."""
        try:
            self._process.wait(max(0, seconds))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False
        finally:
            self._close()
        return True

    def _start(self) -> None:
        # -P: the current folder may contain another `config`.
        command = [sys.executable, "-P", "-u", "-m", "launcher.child"]
        path = [str(PROJECT), os.environ.get("PYTHONPATH", "")]
        variables = {"PYTHONPATH": os.pathsep.join(filter(None, path))}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *self._arguments],
                env=os.environ | variables,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                # Ctrl-C in the terminal reaches only the demo, which passes it on once.
                start_new_session=True,
            )
        self._started = time.monotonic()

    def _close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()

    def _read_last_lines(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(["Last lines of its log:", *lines[-LAST_LINES:]])


def _describe_end(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"
