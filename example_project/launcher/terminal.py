"""Terminal: lines that stay, and below them one that is written again and again."""

from __future__ import annotations

import shutil
import sys
import time

CLEAR_LINE = "\r\x1b[K"


class Terminal:
    """Standard output; not a terminal: the status is a line every few seconds."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._interval = 0.5 if self._is_terminal else 5.0
        self._next = time.monotonic() + self._interval
        # Whether the cursor stands behind a status.
        self._is_open = False

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next status."""
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
        """Print what stays, below the last status."""
        print(f"\n{text}" if self._is_open else text, flush=True)
        self._is_open = False
