"""The flags of `runworker` and `jobqueue worker`, each the option of its name.

A flag that is not given is None: then the environment and the settings speak.
"""

from __future__ import annotations

from argparse import ArgumentParser


def add_worker_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--queues",
        metavar="high:4,default,low",
        help="Queues to serve, with weights. Default: all, new ones included.",
    )
    parser.add_argument(
        "--exclude-queues", metavar="NAMES", help="Queues not to serve."
    )
    parser.add_argument(
        "--concurrency", type=int, metavar="N", help="Jobs that run at a time."
    )
    parser.add_argument(
        "--poll-interval",
        type=float,
        metavar="SECONDS",
        help="How often to look for jobs where nobody can notify us.",
    )
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="The most jobs one claim takes."
    )
    parser.add_argument(
        "--shutdown-timeout",
        type=float,
        metavar="SECONDS",
        help="How long running jobs may go on after the first signal.",
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
        help="The most processes: start more while jobs wait, end them when idle.",
    )
    parser.add_argument(
        "--max-jobs",
        type=int,
        metavar="N",
        help="Replace a process after so many jobs (--in-process: stop).",
    )
    parser.add_argument(
        "--max-memory",
        metavar="SIZE",
        help="Replace a process that takes more memory, such as 512M.",
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        default=None,
        help="No child processes, for debuggers: no hard time-outs either.",
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
        help="Stop after so long without a job.",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        default=None,
        help="When code changes, let running jobs end, then go on with the new code.",
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
    parser.add_argument("--name", help="What to call this worker in lists.")
    parser.add_argument(
        "--log-format", choices=["text", "json"], help="logfmt or JSON lines."
    )
    parser.add_argument(
        "--log-jobs",
        choices=["auto", "all"],
        help="all: one line for each job, however many there are.",
    )
