"""`manage.py jobqueue …`: parse, run one sub-command of cli/, print its answer.

People read text; with --json there is one JSON document on stdout and nothing else,
`{"error": message}` if the sub-command refused. The exit codes stand in cli/answers.py.
"""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError, connections

from ...cli import (
    cancel,
    enqueue,
    listing,
    prune,
    requeue,
    show,
    stats,
    worker,
    workers,
)
from ...cli.answers import NOT_ALL, UNREACHABLE, USAGE, Answer, Refusal, dump
from ...cli.terminal import Terminal
from ...exceptions import JobQueueError
from ...models import Job
from ...options import get_options
from ...outcomes import is_database_trouble
from ...worker.connections import use_immediate_transactions
from ...worker.link import is_child

SUBCOMMANDS: dict[str, Any] = {
    "worker": worker,
    "stats": stats,
    "list": listing,
    "show": show,
    "enqueue": enqueue,
    "cancel": cancel,
    "requeue": requeue,
    "prune": prune,
    "workers": workers,
}


class Command(BaseCommand):
    help = "Run, watch and steer background jobs."
    requires_migrations_checks = False
    requires_system_checks = ["jobqueue"]  # noqa: RUF012

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

    def check(self, *args: Any, **kwargs: Any) -> Any:
        # A child of `jobqueue worker` would only repeat what its supervisor has said.
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
    """Let Django's own options stand behind the sub-command too."""
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
    """Say in a line what is wrong with the database. Raises what it does not know."""
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
