"""Child: one management command as a process of its own, with its log in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
# Seconds. One that ends sooner would end again: it is not started anew.
SHORT_LIFE = 5.0
LAST_LINES = 8


class ChildFailed(Exception):
    """A child came to its end before it could do anything."""


class Child:
    """A running command. It ends with us (see child.py), or when it is interrupted."""

    def __init__(self, name: str, arguments: list[str], *, log: Path) -> None:
        self.name = name
        self._arguments = arguments
        self._log = log
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def revive(self) -> str:
        """If it is gone, start it anew and say how it ended. Raises ChildFailed."""
        code = self._process.poll()
        if code is None:
            return ""
        death = f"The {self.name} {_describe_end(code)}."
        if time.monotonic() - self._started < SHORT_LIFE:
            raise ChildFailed(f"{death}\n{self._read_last_lines()}")
        self._close()
        self._start()
        return death

    def interrupt(self) -> None:
        """Ask it to stop, as Ctrl-C would."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; tell whether it came by itself or had to be forced."""
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
        # -P: whatever lies in the current folder, `config` is ours.
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
                # The terminal's Ctrl-C is for us; we pass it on, once.
                start_new_session=True,
            )
        self._started = time.monotonic()

    def _close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()

    def _read_last_lines(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(["Its last words:", *lines[-LAST_LINES:]])


def _describe_end(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with code {code}"
