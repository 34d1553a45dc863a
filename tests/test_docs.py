"""The reference pages match the code, and the pages are consistent.

Every option, flag, check, signal and state appears on its page exactly once, in the
order of the code and with the values of the code.
"""

import ast
import importlib.util
import re
import uuid
from argparse import ArgumentParser, _SubParsersAction
from dataclasses import MISSING
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import BaseCommand, load_command_class
from django.dispatch import Signal

from django_jobqueue import checks, job_log, options, signals, states
from django_jobqueue.backend import checks as backend_checks
from django_jobqueue.failures import Failure
from django_jobqueue.lifecycle.promote import Promoted
from django_jobqueue.lifecycle.rescue import Rescued
from django_jobqueue.outcomes import (
    Cancelled,
    Crashed,
    Died,
    GivenBack,
    Retried,
    Succeeded,
)
from django_jobqueue.storage.claims import Claim
from django_jobqueue.storage.commit_signals import (
    report_cancelled,
    report_enqueued,
    report_pruned,
    report_requeued,
)
from django_jobqueue.storage.endings import Ending
from tests.factories import make_job

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts),
]
GENERAL_FLAGS = {action.dest for action in BaseCommand().create_parser("", "")._actions}

CODE = re.compile(r"`([^`]+)`")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def read(page: str) -> str:
    return (DOCS / "reference" / page).read_text()


def sections(text: str, *, level: int) -> dict[str, str]:
    """Return {heading without backticks: text below it}; each heading occurs once."""
    parts = re.split(rf"^{'#' * level} (.+)$", text, flags=re.MULTILINE)[1:]
    names = [name.strip("`") for name in parts[::2]]
    assert len(names) == len(set(names)), f"twice: {names}"
    # A section ends at the next heading of a higher level.
    ends = re.compile(rf"^#{{1,{level - 1}}} ", re.MULTILINE)
    return {
        name: ends.split(text)[0] for name, text in zip(names, parts[1::2], strict=True)
    }


def table(text: str) -> list[list[str]]:
    """Return the rows of the only table in a text, without its header."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def named(text: str) -> list[str]:
    return CODE.findall(text)


def first_column(text: str) -> list[str]:
    return [name for row in table(text) for name in named(row[0])]


DOCUMENTED = sections(read("settings.md"), level=3)


def facts(key: str) -> dict[str, str]:
    """Return {"Default": …, "Takes": …, …} of one setting."""
    lines = re.findall(r"^- (\w+): (.+)$", DOCUMENTED[key], re.MULTILINE)
    assert [name for name, _ in lines] == ["Default", "Takes", "Environment", "Flag"]
    return dict(lines)


def default_of(key: str) -> Any:
    """Return a default as a user writes it in settings."""
    field = options.KEYS[key]
    if field.default is MISSING:
        kept = options.DEFAULT_RETENTION
        return {name: as_seconds(limit.age) for name, limit in kept.items()}
    return as_seconds(field.default)


def as_seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def expected_by(key: str) -> str:
    """Return what an option's error message says it expects."""
    with pytest.raises(ValueError, match=r".") as caught:
        options.KEYS[key].metadata["read"](object())
    return str(caught.value)


def split_numbers(text: str) -> tuple[str, list[float]]:
    """Compare 1 and 1.0 as numbers."""
    number = re.compile(r"\d+(?:\.\d+)?(?:e\+\d+)?")
    return number.sub("0", text), [float(found) for found in number.findall(text)]


def test_settings_are_in_the_order_of_the_code() -> None:
    assert list(DOCUMENTED) == list(options.KEYS)


@pytest.mark.parametrize("key", options.KEYS)
def test_default_of_a_setting_is_documented(key: str) -> None:
    assert ast.literal_eval(facts(key)["Default"].strip("`")) == default_of(key)


@pytest.mark.parametrize("key", options.KEYS)
def test_values_and_unit_of_a_setting_are_documented(key: str) -> None:
    assert split_numbers(facts(key)["Takes"]) == split_numbers(expected_by(key))


@pytest.mark.parametrize("key", options.KEYS)
def test_environment_of_a_setting_is_documented(key: str) -> None:
    alias, factor = options.ENVIRONMENT_ALIASES.get(key, ("", 1))
    line = facts(key)["Environment"]
    assert named(line) == [f"JOBQUEUE_{key}", *([alias] if alias else [])]
    assert ("(milliseconds)" in line) == (factor == 0.001)
    assert ("(JSON)" in line) == (options.KEYS[key].metadata["cast"] == "json")


@pytest.mark.parametrize("key", options.KEYS)
def test_flag_of_a_setting_is_documented(key: str) -> None:
    flag = f"--{key.lower().replace('_', '-')}"
    has_flag = flag in flags_of(parser_of("runworker"))
    assert named(facts(key)["Flag"]) == ([flag] if has_flag else [])


def parser_of(name: str) -> ArgumentParser:
    return load_command_class("django_jobqueue", name).create_parser("manage.py", name)


def subcommands() -> dict[str, ArgumentParser]:
    found = (
        action
        for action in parser_of("jobqueue")._actions
        if isinstance(action, _SubParsersAction)
    )
    return dict(next(found).choices)


def flags_of(parser: ArgumentParser) -> list[str]:
    """Return the flags of a command, without those common to all commands."""
    return [
        action.option_strings[-1]
        for action in parser._actions
        if action.option_strings and action.dest not in {*GENERAL_FLAGS, "json"}
    ]


def test_every_flag_of_runworker_is_documented() -> None:
    section = sections(read("commands.md"), level=2)["runworker"]
    assert first_column(section) == flags_of(parser_of("runworker"))


def test_every_subcommand_is_documented() -> None:
    documented = list(sections(read("commands.md"), level=3))
    assert documented == [f"jobqueue {name}" for name in subcommands()]


@pytest.mark.parametrize("name", subcommands())
def test_every_flag_of_a_subcommand_is_documented(name: str) -> None:
    section = sections(read("commands.md"), level=3)[f"jobqueue {name}"]
    assert first_column(section) == flags_of(subcommands()[name])
    assert ("No flags but" in section) == (not flags_of(subcommands()[name]))


def test_exit_codes_are_documented() -> None:
    from django_jobqueue.cli.answers import NOT_ALL, UNREACHABLE, USAGE
    from django_jobqueue.worker.startup.program import LOG_LOST

    # One table for runworker, one for jobqueue: the same numbers mean the same.
    tables = re.findall(
        r"^\| exit code .*?(?=^$)", read("commands.md"), re.MULTILINE | re.DOTALL
    )
    of_worker, of_jobqueue = ([int(row[0]) for row in table(each)] for each in tables)
    assert of_worker == [0, NOT_ALL, USAGE, LOG_LOST, UNREACHABLE]
    assert of_jobqueue == [0, NOT_ALL, USAGE, UNREACHABLE]


def test_every_check_is_documented() -> None:
    package = Path(checks.__file__).parent
    sources = [*package.glob("*.py"), Path(backend_checks.__file__)]
    ids = {
        str(keyword.value.value)
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "id" and isinstance(keyword.value, ast.Constant)
    }
    assert list(sections(read("checks.md"), level=2)) == sorted(ids)


@pytest.mark.parametrize("name", sections(read("checks.md"), level=2))
def test_entry_of_a_check_states_cause_and_fix(name: str) -> None:
    text = sections(read("checks.md"), level=2)[name]
    assert re.search(r"^\*Cause\*: ", text, re.MULTILINE)
    assert re.search(r"^\*Fix\*: ", text, re.MULTILINE)


SIGNALS = {
    name: value for name, value in vars(signals).items() if isinstance(value, Signal)
}
WORKER = uuid.uuid4()
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_claim() -> Claim:
    values: dict[str, Any] = dict.fromkeys(Claim._fields)
    return Claim(
        **values
        | {
            "id": uuid.uuid4(),
            "lease_token": 1,
            "job_type": "a.job",
            "queue": "default",
            "attempt": 1,
            "claimed_at": NOW,
        }
    )


def send_all() -> None:
    """Send every signal about a job."""
    log = job_log.JobLog(WORKER, is_complete=True)
    claim = make_claim()
    log.report_started(claim)
    log.report_lost(claim, what="succeeded")
    for outcome in (
        Succeeded(),
        Retried(delay=timedelta(1), failure=Failure()),
        GivenBack(label=states.AttemptOutcome.SNOOZED),
        Crashed(delay=timedelta(1), failure=Failure(), is_alone=True),
        Cancelled(),
        Died(reason=states.DeadReason.EXCEPTION, failure=Failure()),
    ):
        log.report_ended(Ending(claim=claim, outcome=outcome))
    rescued = Rescued(
        claim.id, "a.job", "default", uuid.uuid4(), 1, 1, "dead", "WorkerLost"
    )
    job_log.report_rescued(rescued, worker_id=WORKER)
    promoted = Promoted(claim.id, "a.job", "default", 1)
    job_log.report_promoted([promoted], worker_id=WORKER)
    report_enqueued("default", [(claim.id, "a.job", "default", NOW)])
    report_cancelled("default", [(claim.id, "a.job", "default", 0)], reason="")
    report_requeued("default", [make_job()])
    report_pruned("default", [claim.id])


def arguments_of(text: str) -> list[str]:
    [line] = re.findall(r"^Arguments: (.+)$", text, re.MULTILINE)
    return named(line)


def test_every_signal_is_documented() -> None:
    assert list(sections(read("signals.md"), level=3)) == list(SIGNALS)


@pytest.mark.django_db
def test_arguments_of_signals_are_documented(
    django_capture_on_commit_callbacks: Any,
) -> None:
    sent: dict[str, list[str]] = {}

    def listen_to(name: str) -> Any:
        def note(signal: Signal, sender: Any, **values: Any) -> None:
            sent[name] = list(values)

        return note

    receivers = {name: listen_to(name) for name in SIGNALS}
    for name, signal in SIGNALS.items():
        signal.connect(receivers[name])
    try:
        with django_capture_on_commit_callbacks(execute=True):
            send_all()
    finally:
        for name, signal in SIGNALS.items():
            signal.disconnect(receivers[name])
    documented = {
        name: arguments_of(text)
        for name, text in sections(read("signals.md"), level=3).items()
    }
    # The worker sends these, with no other argument.
    workers = {name: ["worker_id"] for name in ("worker_started", "worker_stopped")}
    assert documented == sent | workers


def test_every_log_line_is_documented() -> None:
    tree = ast.parse(Path(job_log.__file__).read_text())
    written = {
        constant.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.IfExp)
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant)
        and isinstance(constant.value, str)
        and re.fullmatch("(jobs?|lease) [a-z ]+", constant.value)
    }
    section = sections(read("signals.md"), level=2)["Log lines"]
    lines = {name for name in first_column(section) if not name.startswith("worker")}
    assert lines == written


@pytest.mark.parametrize(
    ("heading", "choices"),
    [
        ("Statuses of jobs", states.JobStatus),
        ("Reasons of dead jobs", states.DeadReason),
        ("Outcomes of attempts", states.AttemptOutcome),
        ("States of workers", states.WorkerState),
        ("What cancel() returns", states.CancelResult),
    ],
)
def test_every_state_is_documented(heading: str, choices: Any) -> None:
    section = sections(read("states.md"), level=2)[heading]
    assert first_column(section) == [str(choice.value) for choice in choices]


def test_every_transition_is_documented() -> None:
    rows = table(sections(read("states.md"), level=2)["Moves"])
    moves = {
        named(transition)[0]: {place: set(named(ends)) for place in named(starts)}
        for transition, starts, ends, _who in rows
    }
    assert moves == {
        transition: {str(start): set(map(str, ends)) for start, ends in allowed.items()}
        for transition, allowed in states.MOVES.items()
    }
    assert list(moves) == list(states.MOVES)


PYTHON_BLOCKS = [
    pytest.param(
        f"{page.relative_to(ROOT)} {number}",
        text,
        id=f"{page.relative_to(ROOT)} {number}",
    )
    for page in PAGES
    for number, text in enumerate(BLOCK.findall(page.read_text()), 1)
]


@pytest.mark.parametrize(("name", "text"), PYTHON_BLOCKS)
def test_python_block_compiles(name: str, text: str) -> None:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compile(text, name, "exec", flags=flags, dont_inherit=True)


@pytest.mark.parametrize(("name", "text"), PYTHON_BLOCKS)
def test_names_that_a_block_imports_from_the_package_exist(
    name: str, text: str
) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(
            "django_jobqueue"
        ):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                assert hasattr(module, alias.name), f"{name}: {alias.name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_link_targets_of_a_page_exist(page: Path) -> None:
    for target, _anchor in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
