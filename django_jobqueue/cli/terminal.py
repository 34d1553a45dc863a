"""Terminal: where a sub-command writes, and whether a person sits in front of it.

Answers go to stdout by way of the command. Questions and progress go to stderr, and
only where somebody reads them: with --json there is one document on stdout, no more.
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
            raise Refusal(f"{question} Nobody can answer here: add --yes.", code=USAGE)
        self._write(f"{question} [y/N] ", ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise Refusal("Nothing was done.")

    def report(self, line: str) -> None:
        """Show the progress of long work to whoever watches."""
        if self.stderr.isatty():
            self._write(line)

    def _write(self, text: str, **options: str) -> None:
        # Django paints everything on stderr red; neither is an error.
        self.stderr.write(text, style_func=str, **options)
