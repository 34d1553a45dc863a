"""Terminal: the output streams of a sub-command, and whether they are a terminal.

The command prints answers to stdout. Questions and progress go to stderr, and only if
it is a terminal: with --json stdout has exactly one document.
"""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand
from django.core.management.color import no_style

from .answers import USAGE, Refusal


class Terminal:
    """The streams of one command."""

    def __init__(self, command: BaseCommand, *, force_color: bool = False) -> None:
        self.stderr = command.stderr
        is_plain = not (command.stdout.isatty() or force_color)
        self.style: Any = no_style() if is_plain else command.style

    def confirm(self, question: str) -> None:
        """Ask, and raise Refusal unless the answer is yes."""
        if not (sys.stdin.isatty() and self.stderr.isatty()):
            raise Refusal(f"{question} This is not a terminal: add --yes.", code=USAGE)
        self._write(f"{question} [y/N] ", ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise Refusal("Nothing was done.")

    def report(self, line: str) -> None:
        """Show the progress of long work on a terminal."""
        if self.stderr.isatty():
            self._write(line)

    def _write(self, text: str, **options: str) -> None:
        # Django colours all of stderr red; questions and progress are not errors.
        self.stderr.write(text, style_func=str, **options)
