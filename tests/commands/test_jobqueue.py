"""`manage.py jobqueue` as a whole: sub-commands, options, streams, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.management import call_command
from django.db import OperationalError, ProgrammingError

from django_jobqueue import Job
from django_jobqueue.cli import stats
from django_jobqueue.management.commands import runworker
from django_jobqueue.management.commands.jobqueue import SUBCOMMANDS
from tests.commands.running import jobqueue
from tests.factories import make_job, make_worker


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_each_sub_command_says_what_it_does_and_what_json_prints(name: str) -> None:
    result = jobqueue(name, "--help")

    assert result.code == 0
    assert "--json prints:\n" in result.out


@pytest.mark.parametrize(
    "arguments", [[], ["prun"], ["stats", "--nonsense"], ["list", "--status", "lost"]]
)
def test_an_unknown_command_or_flag_is_a_usage_error(arguments: list[str]) -> None:
    result = jobqueue(*arguments)

    assert (result.code, result.out) == (2, "")
    assert "error: " in result.err


@pytest.mark.django_db
def test_general_options_are_accepted_before_and_after_the_sub_command() -> None:
    assert jobqueue("--no-color", "stats").code == 0
    assert jobqueue("stats", "--no-color", "-v", "0", "--skip-checks").code == 0


@pytest.mark.django_db
def test_there_is_colour_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    make_worker()

    assert "\x1b[" not in jobqueue("workers").out
    assert "\x1b[" in jobqueue("--force-color", "workers", is_watched=True).out
    assert "\x1b[" not in jobqueue("--no-color", "workers", is_watched=True).out
    assert json.loads(jobqueue("workers", "--json", is_watched=True).out)


@pytest.mark.django_db
def test_it_can_be_called_from_code(capsys: pytest.CaptureFixture[str]) -> None:
    make_job()

    call_command("jobqueue", "list", json=True)

    assert len(json.loads(capsys.readouterr().out)["jobs"]) == 1


@pytest.mark.django_db
def test_a_database_out_of_reach_is_code_75(monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    def fail(**options: Any) -> None:
        try:
            raise psycopg.OperationalError("connection refused\n  Is it running?")
        except psycopg.OperationalError as error:
            raise OperationalError(*error.args) from error

    monkeypatch.setattr(stats, "read_stats", fail)

    result = jobqueue("stats", "--json")

    message = (
        "The database 'default' cannot be reached: connection refused Is it running?"
    )
    assert (result.code, result.document) == (75, {"error": message})
    assert result.err == f"{message}\n"


@pytest.mark.django_db
def test_missing_tables_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "read_stats", Mock(side_effect=ProgrammingError("no")))
    monkeypatch.setattr(Job._meta, "db_table", "never_migrated")

    result = jobqueue("stats")

    assert result.code == 1
    assert "Run: manage.py migrate --database default" in result.err


@pytest.mark.django_db
def test_an_unexpected_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "read_stats", Mock(side_effect=ProgrammingError("no")))

    with pytest.raises(ProgrammingError):
        jobqueue("stats")


def test_worker_takes_the_arguments_of_runworker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle = Mock()
    monkeypatch.setattr(runworker.Command, "handle", handle)

    result = jobqueue("worker", "--queues", "a:2,b", "--concurrency", 3, "--burst")

    assert result.code == 0
    flags = handle.call_args.kwargs
    assert (flags["queues"], flags["concurrency"], flags["burst"]) == ("a:2,b", 3, True)
    assert flags["log_format"] is None


def test_worker_json_asks_for_json_log_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Mock()
    monkeypatch.setattr(runworker.Command, "handle", handle)

    jobqueue("worker", "--json")

    assert handle.call_args.kwargs["log_format"] == "json"


@pytest.mark.django_db(transaction=True)
def test_a_job_lives_from_the_command_line_alone(worker_env: dict[str, str]) -> None:
    made = _run(worker_env, "enqueue", "testapp.add", "--payload", '{"x": 4}', "--json")
    id = json.loads(made.stdout)["id"]
    worked = _run(worker_env, "worker", "--burst", "--json")
    shown = _run(worker_env, "show", id, "--json")
    again = _run(worker_env, "cancel", id)
    pruned = _run(worker_env, "prune", "--older-than", "0", "--json")
    missing = _run(worker_env, "show", id)
    wrong = _run(worker_env, "show", "nothing")

    codes = [run.returncode for run in (made, worked, shown, again, pruned)]
    assert codes == [0, 0, 0, 1, 0]
    assert json.loads(shown.stdout)["result"] == 5
    assert all(json.loads(line) for line in worked.stderr.splitlines())
    assert json.loads(pruned.stdout)["total"] == 1
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == f"CommandError: There is no job {id}, live or dead.\n"
    assert (wrong.returncode, wrong.stdout) == (2, "")


@pytest.mark.sqlite
def test_a_database_without_tables_is_a_line_not_a_traceback(
    worker_env: dict[str, str], tmp_path: Path
) -> None:
    empty = {"JOBQUEUE_TEST_NAME_default": str(tmp_path / "empty.sqlite3")}

    run = _run({**worker_env, **empty}, "stats")

    assert run.returncode == 1
    assert run.stderr == (
        "CommandError: The database 'default' lacks the tables of django_jobqueue. "
        "Run: manage.py migrate --database default\n"
    )


def _run(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "django", "jobqueue", *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
