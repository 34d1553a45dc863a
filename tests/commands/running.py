"""Run `manage.py jobqueue …` in this process, as the command line would."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_jobqueue.management.commands.jobqueue import Command


@dataclass(frozen=True, slots=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Return the one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Screen(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def jobqueue(*arguments: object, is_watched: bool = False) -> Result:
    """Run a sub-command; the connection stays open for the rest of the test."""
    kind = Screen if is_watched else io.StringIO
    out, err = kind(), kind()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _run([str(argument) for argument in arguments], out, err)
    return Result(code, out.getvalue(), err.getvalue())


def _run(arguments: list[str], out: io.StringIO, err: io.StringIO) -> int:
    command = Command(stdout=out, stderr=err)
    command._called_from_command_line = True
    try:
        parser = command.create_parser("manage.py", "jobqueue")
        flags = vars(parser.parse_args(arguments))
        command.execute(**flags)
    except SystemExit as end:
        return int(end.code or 0)
    except CommandError as error:
        err.write(f"{error}\n")
        return error.returncode
    return 0


def type_answer(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Type an answer to the next question."""
    monkeypatch.setattr("sys.stdin", Screen(f"{answer}\n"))
