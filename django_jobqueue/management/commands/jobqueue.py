"""`manage.py jobqueue …`: parse, run one sub-command of cli/, print its answer.

The output is text, or with --json exactly one JSON document on stdout: for a refused
call it is `{"error": message}`. cli/answers.py lists the exit codes.
"""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, connections

from ...cli import (
    cancel,
    enqueue,
    errors,
    listing,
    prune,
    requeue,
    run_again,
    show,
    stats,
    worker,
    workers,
)
from ...cli.answers import NOT_ALL, UNREACHABLE, USAGE, Answer, Refusal, dump
from ...cli.terminal import Terminal
from ...cli.worker_flags import suggest_flags
from ...database_errors import is_database_trouble
from ...exceptions import JobQueueError
from ...models import Job
from ...options import get_options
from ...worker.running.connections import use_immediate_transactions
from ...worker.startup.program import is_own_program, open_closed_outputs
from ...worker.supervision.supervised_heartbeat import is_child

SUBCOMMANDS: dict[str, Any] = {
    "worker": worker,
    "stats": stats,
    "list": listing,
    "show": show,
    "errors": errors,
    "enqueue": enqueue,
    "cancel": cancel,
    "requeue": requeue,
    "run-again": run_again,
    "prune": prune,
    "workers": workers,
}


class Command(BaseCommand):
    help = "Run, inspect and manage background jobs."
    requires_migrations_checks = False
    requires_system_checks = ["jobqueue"]  # noqa: RUF012

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if is_own_program():
            open_closed_outputs()
        super().__init__(*args, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        names = parser.add_subparsers(dest="subcommand", metavar="COMMAND")
        names.required = True
        for name, subcommand in SUBCOMMANDS.items():
            of_name = names.add_parser(
                name,
                help=subcommand.HELP,
                description=subcommand.HELP,
                epilog=f"--json prints:\n{subcommand.KEYS}",
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            subcommand.add_arguments(of_name)
            of_name.add_argument(
                "--json", action="store_true", help="Print one JSON document."
            )
            _accept_general_options(of_name)
        suggest_flags(parser, names.choices.values())

    def check(self, *args: Any, **kwargs: Any) -> Any:
        # The supervisor of `jobqueue worker` has run the checks for its children.
        return None if is_child() else super().check(*args, **kwargs)

    def handle(self, *args: Any, subcommand: str, **flags: Any) -> None:
        terminal = Terminal(self, force_color=flags["force_color"])
        if subcommand == "worker":
            worker.run(flags, terminal)
            return
        try:
            _prepare_database()
            answer = SUBCOMMANDS[subcommand].run(flags, terminal)
        except Refusal as error:
            self._refuse(str(error), error.code, flags)
        except JobQueueError as error:
            self._refuse(str(error), USAGE, flags)
        except (DatabaseError, InterfaceError) as error:
            self._refuse(*_explain(error), flags)
        self._print(answer, flags)

    def _print(self, answer: Answer, flags: dict[str, Any]) -> None:
        text = dump(answer.document) if flags["json"] else answer.text
        if text:
            self.stdout.write(text)
        if answer.problem:
            raise CommandError(answer.problem, returncode=NOT_ALL)

    def _refuse(self, message: str, code: int, flags: dict[str, Any]) -> NoReturn:
        if flags["json"]:
            self.stdout.write(dump({"error": message}))
        raise CommandError(message, returncode=code)


def _accept_general_options(parser: argparse.ArgumentParser) -> None:
    """Accept Django's own options after the sub-command too."""
    quiet: dict[str, Any] = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    parser.add_argument("--settings", **quiet)
    parser.add_argument("--pythonpath", **quiet)
    parser.add_argument("-v", "--verbosity", type=int, choices=range(4), **quiet)
    for flag in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(flag, action="store_true", **quiet)


def _prepare_database() -> None:
    alias = get_options().database
    if not connections[alias].in_atomic_block:
        use_immediate_transactions(alias)


def _explain(error: Exception) -> tuple[str, int]:
    """Describe a database error in one line. Raises errors it does not know."""
    alias = get_options().database
    if is_database_trouble(error):
        reason = " ".join(str(error).split())[:200]
        return f"The database {alias!r} cannot be reached: {reason}", UNREACHABLE
    if Job._meta.db_table in connections[alias].introspection.table_names():
        raise error
    return (
        f"The database {alias!r} lacks the tables of django_jobqueue. "
        f"Run: manage.py migrate --database {alias}",
        NOT_ALL,
    )
