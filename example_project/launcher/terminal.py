"""Terminal: permanent lines, and below them a status line that is overwritten."""

from __future__ import annotations

import shutil
import sys
import time

CLEAR_LINE = "\r\x1b[K"


class Terminal:
    """Standard output; if it is not a terminal, a status line every few seconds."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._interval = 0.5 if self._is_terminal else 5.0
        self._next = time.monotonic() + self._interval
        # Whether the cursor is at the end of a status line.
        self._is_open = False

    @property
    def is_due(self) -> bool:
        """Return whether it is time for the next status."""
        return time.monotonic() >= self._next

    def show_status(self, text: str) -> None:
        self._next = time.monotonic() + self._interval
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns
            print(f"{CLEAR_LINE}{text[: columns - 1]}", end="", flush=True)
            self._is_open = True
        else:
            print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)

    def say(self, text: str) -> None:
        """Print permanent text below the last status."""
        print(f"\n{text}" if self._is_open else text, flush=True)
        self._is_open = False
