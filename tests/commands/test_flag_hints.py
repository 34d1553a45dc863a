"""The error about an unknown flag or sub-command suggests a similar one."""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError, CommandParser

from django_jobqueue.management.commands.jobqueue import Command as JobQueue
from django_jobqueue.management.commands.runworker import Command as RunWorker


@pytest.mark.parametrize(
    ("command", "arguments", "hint"),
    [
        (RunWorker, ["--concurency", "2"], "Did you mean --concurrency?"),
        (RunWorker, ["--queue=mail"], None),
        (RunWorker, ["--in-proces", "--relaod"], "Did you mean --reload?"),
        (JobQueue, ["worker", "--concurency", "2"], "Did you mean --concurrency?"),
        (RunWorker, ["--zzz"], None),
    ],
)
def test_an_unknown_flag_suggests_a_similar_one(
    command: type[RunWorker | JobQueue],
    arguments: list[str],
    hint: str | None,
) -> None:
    parser: CommandParser = command().create_parser("manage.py", "x")
    with pytest.raises(CommandError) as raised:
        parser.parse_args([*arguments, "more"])
    error = str(raised.value)
    assert "unrecognized arguments" in error
    assert ("Did you mean" in error) is (hint is not None)
    assert hint is None or hint in error


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["lst"], "Did you mean list?"),
        (["retry"], "Did you mean requeue?"),
        ([], "List them with: manage.py jobqueue --help"),
    ],
)
def test_an_unknown_subcommand_suggests_a_similar_one(
    arguments: list[str], hint: str
) -> None:
    parser: CommandParser = JobQueue().create_parser("manage.py", "jobqueue")
    with pytest.raises(CommandError) as raised:
        parser.parse_args(arguments)
    assert str(raised.value).endswith(hint)
