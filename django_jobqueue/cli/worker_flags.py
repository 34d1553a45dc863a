"""The flags of `runworker` and `jobqueue worker`; each sets the option of its name.

A flag that is not given is None: then the environment or the setting applies.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import Any, NoReturn

from ..suggestions import find_similar


def add_worker_flags(parser: ArgumentParser) -> None:
    queues = parser.add_mutually_exclusive_group()
    queues.add_argument(
        "--queues",
        metavar="high:4,default,low",
        help="Queues to serve, with weights. Default: all, new ones included.",
    )
    queues.add_argument(
        "--exclude-queues", metavar="NAMES", help="Serve all queues except these."
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        metavar="N",
        help="Jobs that one process runs at a time.",
    )
    parser.add_argument(
        "--poll-interval",
        type=float,
        metavar="SECONDS",
        help="Time between two polls while no notification arrives.",
    )
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="The most jobs one claim takes."
    )
    parser.add_argument(
        "--shutdown-timeout",
        type=float,
        metavar="SECONDS",
        help="How long running jobs may continue after the first signal.",
    )
    parser.add_argument(
        "--processes", type=int, metavar="N", help="Processes that run jobs."
    )
    parser.add_argument(
        "--min-processes",
        type=int,
        metavar="N",
        help="The fewest processes, when their number follows the backlog.",
    )
    parser.add_argument(
        "--max-processes",
        type=int,
        metavar="N",
        help="The most processes: start more while jobs wait, stop idle ones.",
    )
    parser.add_argument(
        "--max-jobs",
        type=int,
        metavar="N",
        help="Replace a process after this many jobs (--in-process: stop).",
    )
    parser.add_argument(
        "--max-memory",
        metavar="SIZE",
        help="Replace a process that uses more memory than this, such as 512M.",
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        default=None,
        help="No child processes, for debuggers; no hard time-outs either.",
    )
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument(
        "--once", action="store_true", default=None, help="Stop after one job."
    )
    ends.add_argument(
        "--burst",
        action="store_true",
        default=None,
        help="Stop when nothing of the queues is pending, running or due.",
    )
    parser.add_argument(
        "--idle-timeout",
        type=float,
        metavar="SECONDS",
        help="Stop after this time without a job.",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        default=None,
        help="When code changes, let running jobs end, then restart with the new code.",
    )
    parser.add_argument(
        "--health-host",
        metavar="ADDRESS",
        help="Where --health-port listens. Default: 127.0.0.1.",
    )
    parser.add_argument(
        "--health-port",
        type=int,
        metavar="PORT",
        help="Answer /live and /ready by HTTP on this port.",
    )
    parser.add_argument(
        "--heartbeat-file",
        metavar="PATH",
        help="Touch this file at each confirmed heartbeat.",
    )
    parser.add_argument(
        "--database", metavar="ALIAS", help="The database that holds the jobs."
    )
    parser.add_argument("--name", help="The name of this worker in lists.")
    parser.add_argument(
        "--log-format", choices=["text", "json"], help="logfmt or JSON lines."
    )
    parser.add_argument(
        "--log-jobs",
        choices=["auto", "all"],
        help="all: one line for each job, however many there are.",
    )


def suggest_flags(parser: Any, others: Iterable[Any] = ()) -> None:
    """Extend the parser's errors: name the flag or sub-command that was probably
    meant. `others` are the parsers of its sub-commands."""
    parsers = [parser, *others]
    report = parser.error

    def report_with_hint(message: str) -> NoReturn:
        known = {flag for each in parsers for flag in each._option_string_actions}
        if message.startswith("unrecognized arguments:"):
            hints = [find_similar(flag, known) for flag in _FLAG.findall(message)]
            meant = ", ".join(hint for hint in hints if hint)
            message += f". Did you mean {meant}?" if meant else ""
        elif message.startswith("argument COMMAND: invalid choice:"):
            given, *names = _QUOTED.findall(message)
            command = _OTHER_COMMANDS.get(given) or find_similar(given, names)
            message += f". Did you mean {command}?" if command else ""
        elif message.endswith("required: COMMAND"):
            message += ". List them with: manage.py jobqueue --help"
        report(message)
        raise AssertionError("the parser's error() has returned")

    parser.error = report_with_hint


_FLAG = re.compile(r"(?<= )--[^\s=]+")
_QUOTED = re.compile(r"'([^']*)'")
# Sub-commands of other job systems → ours.
_OTHER_COMMANDS = {"retry": "requeue", "purge": "prune", "status": "stats"}
