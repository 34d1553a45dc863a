"""`jobqueue worker`: the same as `runworker`, which another app may define too."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from ..management.commands.runworker import Command as RunWorker
from .terminal import Terminal
from .worker_flags import add_worker_flags

HELP = RunWorker.help
KEYS = "The same as --log-format json: one JSON object per log line, on stderr."


def add_arguments(parser: ArgumentParser) -> None:
    add_worker_flags(parser)


def run(flags: dict[str, Any], terminal: Terminal) -> None:
    """Run jobs until a signal stops the worker."""
    command = RunWorker()
    command.stderr = terminal.stderr
    if flags["json"]:
        flags["log_format"] = "json"
    command.handle(**flags)
