"""The flags of `runworker`: what a wrong one says, and its exit code."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest
from django.core.management.base import CommandError
from django.test import override_settings

from django_jobqueue.cli.queue_names import describe_unknown_queues
from django_jobqueue.management.commands.runworker import Command
from django_jobqueue.models import Queue
from django_jobqueue.options import make_options
from tests.commands.running import jobqueue
from tests.factories import make_dead_job, make_job


def refuse(**flags: Any) -> CommandError:
    with pytest.raises(CommandError) as caught:
        Command()._read_options(flags, is_quiet=True)
    return caught.value


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"concurrency": 0}, "a whole number from 1 to 10000; it is 0."),
        ({"queues": "a:b"}, "as the weight of 'a'; it is 'a:b'. Change it"),
        ({"queues": "a/b"}, "--queues: A queue name has 1 to 64 letters"),
        ({"exclude_queues": "a:3"}, "without weights, or a list; it is 'a:3'"),
        ({"idle_timeout": 0.0}, "from 0.1 to 315360000; it is 0.0."),
        ({"max_memory": "5"}, "at least one megabyte"),
        ({"health_port": 99999}, "from 0 to 65535; it is 99999."),
        ({"name": ""}, "a text of 1 to 200 characters; it is ''."),
        ({"once": True, "reload": True}, "--reload cannot be combined with --once"),
        ({"min_processes": 3, "max_processes": 2}, "must not be above"),
        ({"database": "nowhere"}, "There is no database 'nowhere'"),
    ],
)
def test_wrong_flag_is_a_usage_error(flags: dict[str, Any], text: str) -> None:
    error = refuse(**flags)
    assert error.returncode == 2
    assert text in str(error)
    assert "None" not in str(error)
    assert "e+" not in str(error)


def test_wrong_setting_is_code_1() -> None:
    with override_settings(JOBQUEUE={"CONCURRENCY": 0}):
        assert refuse(concurrency=None).returncode == 1
    with override_settings(JOBQUEUE={"DATABASE": "nowhere"}):
        assert refuse().returncode == 1


@pytest.mark.parametrize(
    "flags",
    [["--queues", "a", "--exclude-queues", "b"], ["--once", "--burst"]],
)
def test_flags_that_exclude_each_other_are_a_usage_error(flags: list[str]) -> None:
    result = jobqueue("worker", *flags)
    assert result.code == 2
    assert "not allowed with argument" in result.err


@pytest.mark.django_db
def test_name_that_nothing_uses_is_described() -> None:
    make_job(queue="mail")
    options = make_options({"queues": "mial,nothing-like-it,mail"})
    assert list(describe_unknown_queues(options)) == [
        "No handler and no job uses the queue 'mial'. Did you mean 'mail'?",
        "No handler and no job uses the queue 'nothing-like-it'.",
    ]
    options = make_options({"exclude_queues": "mial"})
    assert len(list(describe_unknown_queues(options))) == 1


@pytest.mark.django_db
def test_name_that_a_handler_a_job_or_a_row_has_is_known() -> None:
    make_job(queue="waiting")
    make_job(queue="later", scheduled=True)
    make_job(queue="busy", running=True)
    make_dead_job(queue="grave")
    Queue.objects.create(name="met")
    names = "default,waiting,later,busy,grave,met"
    assert list(describe_unknown_queues(make_options({"queues": names}))) == []


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_worker_warns_about_a_mistyped_queue(worker_env: dict[str, str]) -> None:
    make_job(queue="mail", scheduled=True)
    run = subprocess.run(
        [sys.executable, "-m", "django", "runworker", "--burst", "--queues", "mial"],
        env=worker_env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0
    [line] = [line for line in run.stderr.splitlines() if "No handler" in line]
    assert "No handler and no job uses the queue 'mial'" in line
    assert "Did you mean 'mail'?" in line
    assert logging.getLevelName(logging.WARNING).lower() in line.lower()
